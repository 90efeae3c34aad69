//! The memory regions of a domain, and which of its endpoints serve them.

use tagmatch_device::slab::Key;
use tagmatch_ofi_sys::calls::{Errno, Result};

use super::{RegionServers, State, closed};
use crate::policy::{Provider, ProviderEndpoint};
use crate::remote::SharedRegion;

impl<P: Provider> State<P> {
    /// Whether peers may use a region with this key.
    pub(crate) fn has_region(&self, key: u64) -> bool {
        self.regions.contains_key(&key)
    }

    /// Adds a region, and lets peers use it over the endpoints that serve it from the beginning.
    ///
    /// # Errors
    /// `-FI_ENOKEY`: there is a region with this key. Or an endpoint can't.
    pub(crate) fn add_region(
        &mut self,
        region: SharedRegion,
        servers: RegionServers,
    ) -> Result<()> {
        if self.has_region(region.key) {
            return Err(Errno::NO_KEY);
        }
        self.regions.insert(region.key, (region, servers));
        self.expose(region.key).inspect_err(|_| {
            // The program takes the memory back when this fails.
            while self.remove_region(region.key).is_err() {
                std::thread::yield_now();
            }
        })
    }

    /// Lets peers use a region over the endpoints that serve it now.
    fn expose(&mut self, key: u64) -> Result<()> {
        let (region, servers) = *closed(self.regions.get(&key))?;
        let endpoints = match servers {
            RegionServers::All => self.endpoints.keys_where(|_| true),
            RegionServers::One(endpoint) => vec![endpoint],
            _ => Vec::new(),
        };
        for endpoint in endpoints {
            closed(self.endpoints.get_mut(endpoint))?.expose(&region)?;
        }
        Ok(())
    }

    /// Binds a region to an endpoint, which means nothing for a region that all endpoints serve.
    pub(crate) fn bind_region_to_endpoint(&mut self, region: u64, endpoint: Key) -> Result<()> {
        closed(self.endpoints.get(endpoint))?;
        let (_, servers) = closed(self.regions.get_mut(&region))?;
        match servers {
            RegionServers::All | RegionServers::AllOnceEnabled => Ok(()),
            RegionServers::Unbound => {
                *servers = RegionServers::OneOnceEnabled(endpoint);
                Ok(())
            }
            _ => Err(Errno::BAD_STATE),
        }
    }

    /// Enables a region. Nothing happens if it is enabled.
    ///
    /// # Errors
    /// It has to be bound to an endpoint before. Or an endpoint can't serve it.
    pub(crate) fn enable_region(&mut self, region: u64) -> Result<()> {
        let (_, servers) = closed(self.regions.get_mut(&region))?;
        let before = *servers;
        *servers = match before {
            RegionServers::Unbound => return Err(Errno::BAD_STATE),
            RegionServers::AllOnceEnabled => RegionServers::All,
            RegionServers::OneOnceEnabled(endpoint) => RegionServers::One(endpoint),
            RegionServers::All | RegionServers::One(_) => return Ok(()),
        };
        self.expose(region).inspect_err(|_| {
            if let Some((_, servers)) = self.regions.get_mut(&region) {
                *servers = before;
            }
        })
    }

    /// Counts in a counter what peers change in a region.
    pub(crate) fn bind_region(&mut self, region: u64, counter: Key) -> Result<()> {
        closed(self.tables.counters.get_mut(counter))?.regions += 1;
        self.tables.region_counters.entry(region).or_default().push(counter);
        Ok(())
    }

    /// Peers no longer use the region with this key.
    ///
    /// # Errors
    /// As for [`ProviderEndpoint::conceal`]. The region stays.
    pub(crate) fn remove_region(&mut self, key: u64) -> Result<()> {
        for endpoint in self.endpoints.keys_where(|_| true) {
            closed(self.endpoints.get_mut(endpoint))?.conceal(key)?;
        }
        self.regions.remove(&key);
        for counter in self.tables.region_counters.remove(&key).into_iter().flatten() {
            if let Some(counter) = self.tables.counters.get_mut(counter) {
                counter.regions -= 1;
            }
        }
        Ok(())
    }
}
