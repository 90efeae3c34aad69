//! Which provider a device takes: the rule, and its reasons.
//!
//! libfabric offers one entry for each provider and each of its interfaces. A provider that matches
//! in the NIC comes first, then one for a network of its own, then those over verbs and TCP. Among
//! the entries of a provider, libfabric's order counts, and loopback comes last.

use std::net::IpAddr;

use super::library::Offer;

/// How a provider is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The rule may take it; lower numbers first.
    Ranked(u32),
    /// Taken only if it is named.
    OnRequest(&'static str),
    /// Never taken.
    Refused(&'static str),
}

use Standing::{OnRequest, Ranked, Refused};

/// What becomes of the providers that are known. A name may be the core provider of a stack, such
/// as `tcp` of `tcp;ofi_rxm`, and stands for the stack if that has no line of its own.
const KNOWN: [(&str, Standing); 17] = [
    ("cxi", Ranked(0)),
    ("efa", Ranked(1)),
    ("opx", Ranked(2)),
    ("psm2", Ranked(3)),
    ("verbs;ofi_rxm", Ranked(4)),
    ("tcp;ofi_rxm", Ranked(5)),
    ("tcp", Ranked(6)),
    ("net;ofi_rxm", Ranked(7)),
    ("net", OnRequest("it forgets the messages of a peer that has left")),
    ("shm", OnRequest("it reaches this machine alone, where shared memory of our own is faster")),
    ("sm2", OnRequest("it reaches this machine alone, where shared memory of our own is faster")),
    ("psm3", OnRequest("it ends the process if a connection fails")),
    ("tagmatch", OnRequest("it is this library itself")),
    ("lnx", Refused("it ends the process if it has more domains to link than it has room for")),
    ("sockets", Refused("it reports receives as cancelled into which data goes")),
    ("ofi_rxd", Refused("it reports whole messages as truncated")),
    ("ucx", Refused("it carries no data beside the tag; the device ucx reaches UCX")),
];

/// The first version of `shm` that may be taken. That of 1.17 stops between two processes that
/// exchange messages of more than 8 KiB: a message is never delivered.
const SHM_MIN: u32 = 200;

/// Bits of a tag without which no layout fits.
const TAG_BITS_MIN: u32 = 40;

/// What the rule says of a provider.
pub(super) fn standing(provider: &str) -> Standing {
    let known = |name: &str| KNOWN.iter().find(|(of, _)| *of == name).map(|(_, is)| *is);
    // A layer that spoils every provider below it.
    if provider.split(';').any(|layer| layer == "ofi_rxd") {
        return known("ofi_rxd").unwrap_or(Ranked(u32::MAX));
    }
    known(provider).unwrap_or(OnRequest("nothing is known of it"))
}

/// Why this version of a provider is never taken.
pub(super) fn refusal(offer: &Offer) -> Option<&'static str> {
    let is_old = offer.provider == "shm" && offer.version < SHM_MIN;
    is_old.then_some("it doesn't deliver all messages before libfabric 2.0")
}

/// The place of the offer that a device takes, and the reason for each that it doesn't.
pub(super) struct Choice {
    pub(super) taken: Option<usize>,
    /// For each offer, why it isn't taken. Empty for the one that is.
    pub(super) reasons: Vec<String>,
}

/// Chooses among libfabric's offers. `wanted` is the provider that was asked for.
pub(super) fn choose(offers: &[Offer], wanted: Option<&str>, listen: &[IpAddr]) -> Choice {
    let judged: Vec<Result<(u32, bool), String>> =
        offers.iter().map(|offer| judge(offer, wanted, listen)).collect();
    let fit = judged.iter().enumerate().filter_map(|(place, is)| Some((*is.as_ref().ok()?, place)));
    let taken = fit.min().map(|(_, place)| place);
    let reasons = judged.iter().enumerate().map(|(place, is)| match is {
        Err(why) => why.clone(),
        Ok(_) if Some(place) == taken => String::new(),
        Ok(_) => String::from("another one comes first"),
    });
    Choice { taken, reasons: reasons.collect() }
}

/// Rank of an offer, and whether it is loopback's; or why it can't be taken.
fn judge(offer: &Offer, wanted: Option<&str>, listen: &[IpAddr]) -> Result<(u32, bool), String> {
    if let Some(why) = refusal(offer) {
        return Err(why.into());
    }
    let rank = match (standing(&offer.provider), wanted) {
        (Refused(why), _) => return Err(why.into()),
        (_, Some(name)) if name != offer.provider => return Err(format!("{name} was asked for")),
        (OnRequest(why), None) => return Err(format!("only by its name: {why}")),
        (OnRequest(_), Some(_)) => 0,
        (Ranked(rank), _) => rank,
    };
    if let (Some(ip), Some(first)) = (offer.ip, listen.first())
        && ip != *first
        && !first.is_unspecified()
    {
        return Err(format!("its interface is not that of {first}"));
    }
    if offer.tag_bits < TAG_BITS_MIN {
        return Err(format!(
            "it matches {} bits of a tag, and {TAG_BITS_MIN} are needed",
            offer.tag_bits
        ));
    }
    if offer.data_bytes < 4 {
        return Err("it carries less than 4 bytes beside the tag".into());
    }
    Ok((rank, offer.ip.is_some_and(|ip| ip.is_loopback())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(provider: &str, ip: Option<&str>) -> Offer {
        Offer {
            provider: provider.into(),
            version: SHM_MIN,
            domain: "d".into(),
            ip: ip.map(|ip| ip.parse().unwrap()),
            tag_bits: 64,
            data_bytes: 8,
            inject_max: 64,
            message_max: usize::MAX,
            receives_max: 1024,
            is_directed: false,
        }
    }

    fn taken(offers: &[Offer], wanted: Option<&str>, listen: &[&str]) -> Option<usize> {
        let listen: Vec<IpAddr> = listen.iter().map(|ip| ip.parse().unwrap()).collect();
        choose(offers, wanted, &listen).taken
    }

    #[test]
    fn the_nic_that_matches_comes_first_and_loopback_last() {
        let offers = [
            offer("tcp", Some("10.0.0.1")),
            offer("tcp;ofi_rxm", Some("127.0.0.1")),
            offer("tcp;ofi_rxm", Some("10.0.0.1")),
            offer("shm", None),
            offer("cxi", None),
        ];
        assert_eq!(taken(&offers, None, &[]), Some(4));
        assert_eq!(taken(&offers[..4], None, &[]), Some(2));
        assert_eq!(taken(&offers[..4], None, &["127.0.0.1"]), Some(1));
        assert_eq!(taken(&offers[..4], None, &["0.0.0.0"]), Some(2));
        assert_eq!(taken(&offers[..2], None, &["10.0.0.1"]), Some(0));
        assert_eq!(taken(&offers[3..4], None, &[]), None);
        assert_eq!(taken(&[], None, &[]), None);
    }

    #[test]
    fn some_are_taken_by_their_name_alone_and_some_never() {
        for name in ["shm", "sm2", "psm3", "tagmatch", "net", "usnic"] {
            let offers = [offer(name, None)];
            assert_eq!(taken(&offers, None, &[]), None, "{name}");
            assert_eq!(taken(&offers, Some(name), &[]), Some(0), "{name}");
            let why = &choose(&offers, None, &[]).reasons[0];
            assert!(why.starts_with("only by its name: "), "{why}");
        }
        let older = Offer { version: 117, ..offer("shm", None) };
        let never = ["lnx", "sockets", "udp;ofi_rxd", "ucx"].map(|name| offer(name, None));
        for offer in never.iter().chain([&older]) {
            let name = &*offer.provider;
            assert_eq!(taken(std::slice::from_ref(offer), Some(name), &[]), None, "{name}");
        }
    }

    #[test]
    fn each_that_is_not_taken_has_a_reason() {
        let narrow = Offer { tag_bits: 32, ..offer("tcp", None) };
        let bare = Offer { data_bytes: 0, ..offer("tcp", None) };
        let offers = [narrow, bare, offer("tcp", None), offer("net", None), offer("ucx", None)];
        let Choice { taken, reasons } = choose(&offers, None, &[]);
        assert_eq!(taken, Some(2));
        for (place, reason) in reasons.iter().enumerate() {
            assert_eq!(reason.is_empty(), place == 2, "{reason}");
        }
    }
}
