//! Opens the networks of [`DeviceConfig::Auto`](crate::DeviceConfig::Auto): what this machine has
//! beside shared memory.

use tagmatch_device::{DeviceError, JoinAndSleep, Network};
#[cfg(feature = "model")]
use tagmatch_model::Model;
#[cfg(feature = "tcp")]
use tagmatch_tcp::{Tcp, TcpConfig};
#[cfg(feature = "verbs")]
use tagmatch_verbs::Verbs;

use crate::auto::AutoConfig;
use crate::config::{Config, HwTags};

/// A network that was opened, or why it was not.
type Opened = (Network, Result<Box<dyn JoinAndSleep + Send>, DeviceError>);

impl AutoConfig {
    /// Opens each network as a worker with `config` would, and tells which of them that worker would
    /// use, beside shared memory. Takes as long as making that worker.
    pub fn probe(&self, config: &Config) -> Vec<(Network, Result<(), DeviceError>)> {
        self.open(config).into_iter().map(|(network, opened)| (network, opened.map(drop))).collect()
    }

    /// Opens the networks, in the order of preference. The first one gets the list of the model NIC,
    /// if there is to be one.
    pub(crate) fn open(&self, config: &Config) -> Vec<Opened> {
        let mut opened = Vec::new();
        #[cfg(feature = "verbs")]
        {
            let verbs = Verbs::new(config.of_verbs(&self.verbs));
            opened.push((Network::Verbs, verbs.and_then(|verbs| boxed(verbs, &config.hw_tags))));
        }
        #[cfg(feature = "tcp")]
        {
            let has_list = opened.iter().any(|(_, opened): &Opened| opened.is_ok());
            let hw_tags = if has_list { &HwTags::Off } else { &config.hw_tags };
            let secret = config.secret.clone().or_else(|| self.tcp.secret.clone());
            let tcp = Tcp::new(TcpConfig { secret, ..self.tcp.clone() });
            opened.push((Network::Tcp, tcp.and_then(|tcp| boxed(tcp, hw_tags))));
        }
        opened
    }
}

/// A network, under the model of a NIC if there is to be one.
fn boxed<D>(device: D, hw_tags: &HwTags) -> Result<Box<dyn JoinAndSleep + Send>, DeviceError>
where
    D: JoinAndSleep + Send + 'static,
{
    Ok(match hw_tags {
        #[cfg(feature = "model")]
        HwTags::Model(model) => Box::new(Model::new(device, model)?),
        _ => Box::new(device),
    })
}
