//! The settings of an engine.

use tagmatch_device::DeviceError;
use tagmatch_soft::TagMask;

use crate::credit::CreditConfig;
use crate::wire::AppCtx;

/// Settings of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// The largest payload, in bytes, that is sent at once; larger ones are read by the receiver.
    /// The receiver's announced bound holds as well.
    pub eager_max: usize,
    /// The largest payload, in bytes, that is sent in fragments. The bound of the device holds as
    /// well ([`Limits::fragmented_max`](tagmatch_device::Limits)). Larger ones are read by the
    /// receiver. If it is no more than `eager_max`, no message is sent in fragments.
    pub fragmented_max: usize,
    /// Sends that may wait for their FIN at once: 1 to [`AppCtx::OPERATIONS_MAX`]. Further ones
    /// queue.
    pub operations_max: u32,
    /// Bounds of unexpected memory.
    pub credit: CreditConfig,
    /// Bytes from which a receive is worth the NIC's list, where there is one.
    pub nic_threshold: u64,
    /// The bits of a tag that name its source; none if tags don't.
    pub source_bits: TagMask,
    /// How many peers that went down are remembered, 1 or more: their numbers, addresses, and why
    /// they went down. With more, those that went down first are forgotten, once nothing of them is
    /// left: no message that waits or that a matched probe took, no result or end that was not
    /// taken. A peer whose messages were lost is kept until
    /// [`FlushEngine::take_lost`](crate::FlushEngine::take_lost) has told of it, if no more than
    /// that many are. A device may keep all numbers
    /// ([`Device::forget`](tagmatch_device::Device::forget)): then nobody is forgotten.
    pub departed_max: usize,
    /// Seed of the hashes. It must come from outside and be secret: a peer that knew it could
    /// choose tags that make matching slow.
    pub seed: u64,
}

impl EngineConfig {
    /// Checks the ranges.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        if (1..=AppCtx::OPERATIONS_MAX).contains(&self.operations_max) {
            if self.departed_max > 0 {
                return Ok(());
            }
            let setting = "departed_max";
            let range = "1 or more";
            return Err(DeviceError::BadSetting { setting, value: 0, range });
        }
        let setting = "operations_max";
        let value = self.operations_max.into();
        Err(DeviceError::BadSetting { setting, value, range: "from 1 to 1048576" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credit::Amount;

    #[test]
    fn names_the_setting_that_is_out_of_range() {
        let plenty = Amount { messages: 64, bytes: 4096 };
        let of = |operations_max| EngineConfig {
            eager_max: 64,
            fragmented_max: 0,
            operations_max,
            credit: CreditConfig { pool: plenty, first: plenty, peer_max: plenty },
            nic_threshold: 0,
            source_bits: TagMask::ANY,
            departed_max: 1,
            seed: 0,
        };
        assert!(of(1).check().is_ok() && of(AppCtx::OPERATIONS_MAX).check().is_ok());
        for operations_max in [0, AppCtx::OPERATIONS_MAX + 1] {
            let message = of(operations_max).check().unwrap_err().to_string();
            let range = "is out of range: from 1 to 1048576";
            assert_eq!(message, format!("operations_max = {operations_max} {range}"));
        }
    }
}
