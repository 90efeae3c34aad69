//! Settings of a worker on several networks.

use tagmatch_shm::ShmConfig;
#[cfg(feature = "tcp")]
use tagmatch_tcp::TcpConfig;
#[cfg(feature = "verbs")]
use tagmatch_verbs::VerbsConfig;

tagmatch_device::settings! {
    /// Settings of [`DeviceConfig::Auto`](crate::DeviceConfig::Auto): those of its devices.
    ///
    /// Fields may be added: begin with `AutoConfig::default()`, and set fields by the methods named
    /// after them.
    ///
    /// ```
    /// use tagmatch::{AutoConfig, Config, Network};
    /// for (network, found) in AutoConfig::default().probe(&Config::default()) {
    ///     match found {
    ///         Ok(()) => println!("{network} is used"),
    ///         Err(why) => println!("{network} is not used: {why}"),
    ///     }
    /// }
    /// ```
    #[derive(Clone, Debug, Default)]
    pub struct AutoConfig {
        /// Shared memory, for the peers of this machine.
        pub shm: ShmConfig,
        /// Verbs, for the peers of other machines, if a device opens.
        #[cfg(feature = "verbs")]
        pub verbs: VerbsConfig,
        /// TCP, for the peers of other machines that have no verbs, if there is a secret
        /// ([`Config::secret`](crate::Config::secret)).
        #[cfg(feature = "tcp")]
        pub tcp: TcpConfig,
    }
}
