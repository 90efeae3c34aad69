//! The provider of a device: chosen, opened and tried.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tagmatch_device::{DeviceError, TagMatching};
use tagmatch_ofi_sys as sys;

use super::carrier::{Carrier, CqData};
use super::choice::{Choice, Standing::Refused, choose, refusal, standing};
use super::config::OfiConfig;
use super::library::{Offer, OfferQuery, Offers};
use super::objects::{Endpoint, MATCH_MODE, MatchMode, Opening};
use super::operations::HEAD_MAX;
use super::rma;
use super::trial::{Abilities, attempt};

/// Most bytes of a piece of a long message, where the provider sets no limit.
const PIECE_MAX: usize = 1 << 30;
/// Receives that a provider is asked to have at a time, the most that it grants of these: where it
/// has no room for more, later ones match nothing until earlier ones have ended. `ofi_rxm` of
/// libfabric 1.17 has 2048 if it isn't asked, and takes 0.5 KiB of memory for each; `cxi` has no
/// more than 15,360.
const RECEIVES: [usize; 5] = [32_768, 15_360, 8_192, 4_096, 2_048];
/// The eager bound of `ofi_rxm`, and the variable that changes it.
const RXM_EAGER: usize = 16_384;
const RXM_BUFFER_SIZE: &str = "FI_OFI_RXM_BUFFER_SIZE";
/// The variable for the mode of matching of `cxi`.
const CXI_MODE: &str = "FI_CXI_RX_MATCH_MODE";

/// What a device knows of its provider.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) domain: String,
    /// Most bytes of a message that is copied at once.
    pub(super) inject_max: usize,
    pub(super) message_max: usize,
    /// Receives that it has posted at a time.
    pub(super) receives_max: usize,
    /// Most bytes of a piece of a long message.
    pub(super) piece: usize,
    /// The rest of a long message can be written into its receiver's buffer.
    pub(super) writes: bool,
    /// It finds messages that wait, and takes them.
    pub(super) finds: bool,
    pub(super) takes: bool,
    /// A thread can sleep on its descriptor.
    pub(super) wakes: bool,
    /// Its descriptor may miss an event.
    pub(super) wakes_late: bool,
    /// No other device of this process has it.
    pub(super) _sole: Option<Arc<Sole>>,
    /// How it matches, if it was asked to.
    pub(super) mode: Option<MatchMode>,
}

/// The right to the one endpoint of `shm` that a process may have: two of them end the process by a
/// segmentation fault when they exchange more than short messages (libfabric 1.17 and 2.5).
#[derive(Debug)]
pub(super) struct Sole;

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Sole {
    fn claim(provider: &str) -> Result<Option<Arc<Self>>, DeviceError> {
        if provider != "shm" {
            return Ok(None);
        }
        if IS_TAKEN.swap(true, Ordering::Relaxed) {
            return Err(DeviceError::Unsupported {
                what: "a second worker of one process on libfabric's shm",
                why: "its endpoints in one process end the process; sm2, or shared memory of our own, \
                      does it",
            });
        }
        Ok(Some(Arc::new(Sole)))
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::Relaxed);
    }
}

/// How the hello of a peer says that it is reached: `Hello::worker`.
pub(super) struct Way<'a> {
    pub(super) carriage: [u8; 2],
    pub(super) provider: &'a str,
    /// The names of its endpoints, one or two.
    pub(super) names: [&'a [u8]; 2],
}

impl<'a> Way<'a> {
    /// Reads a way.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (carriage, rest) = bytes.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first()?;
        let (provider, rest) = rest.split_at_checked((*length).into())?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (name, side) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let provider = std::str::from_utf8(provider).ok()?;
        Some(Way { carriage: *carriage, provider, names: [name, side] })
    }

    pub(super) fn emit(&self) -> Vec<u8> {
        let length = u8::try_from(self.provider.len()).unwrap_or(0);
        let [name, side] = self.names;
        let first = u16::try_from(name.len()).unwrap_or(0).to_le_bytes();
        [&self.carriage[..], &[length], self.provider.as_bytes(), &first, name, side].concat()
    }
}

/// All that libfabric offers, and which of it a device with these settings takes.
pub(super) fn survey(
    libfabric: &'static sys::Libfabric,
    config: &OfiConfig,
) -> (Vec<Offer>, Choice) {
    // Without a name, some providers aren't offered.
    let wanted = OfferQuery { provider: config.provider.as_deref(), ..OfferQuery::default() };
    let offers: Vec<Offer> = Offers::ask(libfabric, wanted).iter().collect();
    let choice = choose(&offers, config.provider.as_deref(), &config.listen);
    (offers, choice)
}

/// Opens the provider that the settings ask for, or that the rule takes.
pub(super) fn open(
    libfabric: &'static sys::Libfabric,
    config: &OfiConfig,
) -> Result<(Endpoint, Provider, Carrier, sys::fi_addr_t), DeviceError> {
    let (offers, choice) = survey(libfabric, config);
    let Some(offer) = choice.taken.and_then(|place| offers.get(place)) else {
        return Err(nothing_to_take(config.provider.as_deref(), &offers));
    };
    let is_cxi = offer.provider == "cxi";
    if config.hw_tags == TagMatching::Required && !is_cxi {
        return Err(DeviceError::Unsupported {
            what: "matching in the NIC by libfabric",
            why: "only the provider cxi does that, and it isn't the one that is taken here",
        });
    }
    let mut provider = Provider {
        name: offer.provider.clone(),
        domain: offer.domain.clone(),
        inject_max: offer.inject_max.min(HEAD_MAX),
        // A longer message than the provider carries goes in pieces.
        message_max: u32::MAX as usize,
        receives_max: offer.receives_max,
        piece: piece(&offer.provider)?.min(offer.message_max),
        writes: false,
        finds: false,
        takes: false,
        wakes: false,
        wakes_late: is_cxi,
        _sole: Sole::claim(&offer.provider)?,
        mode: None,
    };
    let (endpoint, data) = if is_cxi {
        let (endpoint, mode, receives_max) = open_cxi(libfabric, config, &offer.domain)?;
        provider.receives_max = receives_max;
        provider.mode = Some(mode);
        provider.message_max = offer.message_max;
        (endpoint, CqData::Sender)
    } else {
        let is_it = |other: &Offer| (&other.domain, other.ip) == (&offer.domain, offer.ip);
        let caps = if has_rxm(&offer.provider) { rma::CAPS } else { 0 };
        let deepest = |caps| deepest(libfabric, &offer.provider, caps, is_it);
        let Some(deepest) = deepest(caps).or_else(|| deepest(0)) else {
            return Err(nothing_to_take(config.provider.as_deref(), &offers));
        };
        provider.receives_max = deepest.receives_max;
        let info = deepest.info;
        // These read nothing of a peer behind 64 messages of it that wait.
        let has_side = matches!(&*offer.provider, "tcp" | "net");
        let endpoint = Endpoint::open(libfabric, &Opening { info, cxi_mode: None, has_side })?;
        provider.writes = endpoint.writes() && offer.message_max >= rma::WRITE_MAX as usize;
        (endpoint, if offer.data_bytes >= 8 { CqData::Both } else { CqData::One })
    };
    let carrier = Carrier::new(config.used, config.source, offer.tag_bits.min(TAG_BITS), data)?;
    let Some(oneself) = endpoint.insert(endpoint.names()[0]) else {
        return Err(DeviceError::Unsupported {
            what: "a message to oneself",
            why: "the provider doesn't take its own name",
        });
    };
    let Some(Abilities { finds, takes, wakes }) =
        attempt(&provider.name, &endpoint, oneself, &carrier)
    else {
        return Err(DeviceError::Unsupported {
            what: "a message to oneself",
            why: "it didn't arrive; does `fi_pingpong -e rdm -p PROVIDER` work here?",
        });
    };
    (provider.finds, provider.takes, provider.wakes) = (finds, takes, wakes);
    Ok((endpoint, provider, carrier, oneself))
}

/// An offer with as many receives at a time as a provider grants.
struct Deepest {
    info: NonNull<sys::fi_info>,
    receives_max: usize,
    /// The list that the description is in.
    _offers: Offers,
}

/// The first offer of a provider that fits, with the most receives at a time of [`RECEIVES`], or
/// else with the provider's usual number.
fn deepest(
    libfabric: &'static sys::Libfabric,
    provider: &str,
    caps: u64,
    fits: impl Fn(&Offer) -> bool,
) -> Option<Deepest> {
    RECEIVES.into_iter().chain([0]).find_map(|receives| {
        let provider = Some(provider);
        let offers = Offers::ask(libfabric, OfferQuery { provider, caps, receives, op_flags: 0 });
        let (place, offer) = offers.iter().enumerate().find(|(_, offer)| fits(offer))?;
        let info = offers.raw_at(place)?;
        Some(Deepest { info, receives_max: offer.receives_max, _offers: offers })
    })
}

/// Most bits of a tag that are used. `net` of libfabric 1.17 says 64 and drops the highest.
const TAG_BITS: u32 = 63;

fn nothing_to_take(wanted: Option<&str>, offers: &[Offer]) -> DeviceError {
    let mut named = offers.iter().filter(|offer| Some(&*offer.provider) == wanted);
    let why = match named.find_map(refusal).map_or(wanted.map(standing), |why| Some(Refused(why))) {
        None => {
            "none of its providers is one that the rule takes; `tagperf info` says why not, and \
                 `fi_info -l` what there is"
        }
        Some(Refused(why)) => why,
        Some(_) => {
            "libfabric doesn't offer this provider for tagged messages here; try: fi_info -l"
        }
    };
    DeviceError::Unsupported { what: "libfabric without a usable provider", why }
}

fn has_rxm(provider: &str) -> bool {
    provider.split(';').any(|layer| layer == "ofi_rxm")
}

/// Most bytes of a piece.
fn piece(provider: &str) -> Result<usize, DeviceError> {
    if !has_rxm(provider) {
        return Ok(PIECE_MAX);
    }
    // A rendezvous of this layer ends the receiver by a segmentation fault if its sender dies.
    let set = std::env::var(RXM_BUFFER_SIZE).ok();
    let eager = set.and_then(|size| size.trim().parse().ok()).unwrap_or(RXM_EAGER).min(RXM_EAGER);
    if eager < HEAD_MAX {
        return Err(DeviceError::Unsupported {
            what: "a small FI_OFI_RXM_BUFFER_SIZE",
            why: "messages of 8192 bytes have to be eager; unset the variable",
        });
    }
    Ok(eager)
}

/// Opens the NIC `domain` of `cxi` with a receive that names its sender, a completion that tells of
/// the match, and a mode of matching that doesn't end the process where the NIC has no more room.
fn open_cxi(
    libfabric: &'static sys::Libfabric,
    config: &OfiConfig,
    domain: &str,
) -> Result<(Endpoint, MatchMode, usize), DeviceError> {
    // A level that is asked for becomes that of every send, so the endpoint is opened without it.
    let provider = Some("cxi");
    let op_flags = sys::FI_MATCH_COMPLETE;
    let is_true =
        Offers::ask(libfabric, OfferQuery { provider, op_flags, ..OfferQuery::default() });
    let is_true = is_true.iter().next().is_some();
    let fits = |offer: &Offer| {
        is_true && offer.domain == domain && offer.is_directed && offer.data_bytes >= 8
    };
    let Some(Deepest { info, receives_max, _offers }) =
        deepest(libfabric, "cxi", sys::FI_DIRECTED_RECV, fits)
    else {
        return Err(DeviceError::Unsupported {
            what: "this provider cxi",
            why: "it offers no receives that name their sender together with FI_MATCH_COMPLETE",
        });
    };
    let is_software = config.hw_tags == TagMatching::Off;
    let mode = if is_software { MatchMode::Software } else { MatchMode::Hybrid };
    match Endpoint::open(libfabric, &Opening { info, cxi_mode: Some(mode), has_side: false }) {
        Ok(endpoint) => Ok((endpoint, mode, receives_max)),
        Err(DeviceError::System { call: MATCH_MODE, .. }) => {
            let mode = match std::env::var(CXI_MODE).as_deref() {
                Ok("software") => MatchMode::Software,
                Ok("hybrid") if !is_software => MatchMode::Hybrid,
                _ => {
                    return Err(DeviceError::Unsupported {
                        what: "cxi of a libfabric before 2.4",
                        why: "its matching in hardware ends the process where the NIC has no more \
                              room; try: export FI_CXI_RX_MATCH_MODE=hybrid (or software, with \
                              HwTags::Off)",
                    });
                }
            };
            let opening = Opening { info, cxi_mode: None, has_side: false };
            Ok((Endpoint::open(libfabric, &opening)?, mode, receives_max))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn over_rxm_a_piece_is_no_rendezvous() {
        assert_eq!(piece("tcp;ofi_rxm").unwrap(), RXM_EAGER);
        assert_eq!(piece("tcp").unwrap(), PIECE_MAX);
    }

    proptest! {
        #[test]
        fn ways_round_trip(carriage: [u8; 2], provider in "[a-z;_]{0,40}", name: Vec<u8>, side: Vec<u8>) {
            let way = Way { carriage, provider: &provider, names: [&name, &side] };
            let bytes = way.emit();
            let read = Way::parse(&bytes).unwrap();
            prop_assert_eq!((read.carriage, read.provider), (carriage, &*provider));
            prop_assert_eq!(read.names, [&name[..], &side[..]]);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Way::parse(&bytes);
        }
    }
}
