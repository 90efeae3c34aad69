//! Opens the networks of [`DeviceConfig::Auto`](crate::DeviceConfig::Auto): what this machine has
//! beside shared memory.

use tagmatch_device::{DeviceError, JoinAndSleep, Network};
#[cfg(feature = "tcp")]
use tagmatch_tcp::Tcp;
#[cfg(feature = "verbs")]
use tagmatch_verbs::Verbs;

use crate::auto::AutoConfig;
use crate::config::{Config, HwTags};

type Opened = Result<Box<dyn JoinAndSleep + Send>, DeviceError>;

/// Opens a network with the list of a NIC that is asked for.
type Open = fn(&AutoConfig, &Config, &HwTags) -> Opened;

/// In the order of preference.
const NETWORKS: &[(Network, Open)] = &[
    #[cfg(feature = "verbs")]
    (Network::Verbs, |auto, config, hw_tags| {
        boxed(Verbs::new(config.of_verbs(&auto.verbs))?, hw_tags)
    }),
    #[cfg(feature = "tcp")]
    (Network::Tcp, |auto, config, hw_tags| boxed(Tcp::new(config.of_tcp(&auto.tcp))?, hw_tags)),
];

impl AutoConfig {
    /// Opens each network as a worker with `config` would, and tells which of them that worker
    /// would use, beside shared memory. Takes as long as making that worker.
    pub fn probe(&self, config: &Config) -> Vec<(Network, Result<(), DeviceError>)> {
        self.open(config).into_iter().map(|(network, opened)| (network, opened.map(drop))).collect()
    }

    /// Opens the networks. The first one that opens gets the list of the model NIC, if there is to
    /// be one.
    pub(crate) fn open(&self, config: &Config) -> Vec<(Network, Opened)> {
        let mut hw_tags = &config.hw_tags;
        let opened = NETWORKS.iter().map(|(network, open)| {
            let opened = open(self, config, hw_tags);
            if opened.is_ok() {
                hw_tags = &HwTags::Off;
            }
            (*network, opened)
        });
        opened.collect()
    }
}

/// A network, under the model of a NIC if there is to be one.
#[cfg(any(feature = "tcp", feature = "verbs"))]
fn boxed<D>(device: D, hw_tags: &HwTags) -> Opened
where
    D: JoinAndSleep + Send + 'static,
{
    Ok(match hw_tags {
        #[cfg(feature = "model")]
        HwTags::Model(model) => Box::new(tagmatch_model::Model::new(device, model)?),
        _ => Box::new(device),
    })
}

#[cfg(all(test, not(loom), feature = "model", feature = "tcp"))]
mod tests {
    use std::net::Ipv4Addr;

    use tagmatch_model::ModelConfig;
    use tagmatch_tcp::TcpConfig;

    use super::*;
    use crate::Secret;

    /// A machine without RDMA has the model at TCP, which comes behind it.
    #[test]
    fn the_first_network_that_opens_has_the_model_nic() {
        let mut config = Config::default().hw_tags(HwTags::Model(ModelConfig::default()));
        config.secret = Secret::from_bytes(&[7; 16]).ok();
        let tcp = TcpConfig::default().listen(vec![Ipv4Addr::LOCALHOST.into()]);
        let opened = AutoConfig::default().tcp(tcp).open(&config);
        let devices = opened.into_iter().filter_map(|(_, opened)| opened.ok());
        let has_list: Vec<bool> = devices.map(|mut device| device.tags().is_some()).collect();
        assert!(has_list[0] && !has_list[1..].contains(&true), "{has_list:?}");
    }
}
