//! What a provider offers, and what a program gets of it: fi_getinfo(3), fi_endpoint(3),
//! fi_domain(3) and fi_fabric(3). An offer is a list of limits, and each attribute that a program
//! asks for is compared with the offer's.

use tagmatch_ofi_sys as sys;

use crate::hints::Hints;

/// What all offers of a provider have alike.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// The provider's version.
    pub provider_version: u32,
    /// The fabric's name.
    pub fabric: &'static str,
    /// The format of addresses.
    pub address_format: u32,
    /// Bytes of an endpoint's name.
    pub name_bytes: usize,
    /// A domain may have a thread that makes progress (`FI_PROGRESS_AUTO`). Endpoints tell how
    /// often they have made progress ([`rounds`](crate::ProviderEndpoint::rounds)).
    pub has_auto_progress: bool,
}

/// What there is for a program, and later what the program gets. Pointers in the structures are
/// null.
#[derive(Clone)]
pub struct Offer {
    /// Capabilities.
    pub caps: u64,
    /// Attributes of sends.
    pub transmit: sys::fi_tx_attr,
    /// Attributes of receives.
    pub receive: sys::fi_rx_attr,
    /// Attributes of the endpoint.
    pub endpoint: sys::fi_ep_attr,
    /// Attributes of the domain.
    pub domain: sys::fi_domain_attr,
    /// The domain's name.
    pub domain_name: String,
}

/// Why a program gets no offer.
pub type Refusal = &'static str;

/// The offers for a program, the best one first, or why there is none.
pub type Offers = Result<Vec<Offer>, Refusal>;

/// Refuses an offer for a reason.
#[macro_export]
macro_rules! require {
    ($condition:expr, $why:expr) => {
        if !$condition {
            return Err($why);
        }
    };
}

/// Refuses attributes that are larger than those of the offer.
macro_rules! at_most {
    ($wanted:ident, $offered:expr; $($field:ident)*) => {
        $(require!(
            $wanted.$field <= $offered.$field,
            concat!("`", stringify!($field), "` is larger than there is")
        );)*
    };
}

/// Refuses attributes that have other bits than those of the offer.
macro_rules! bits_of {
    ($wanted:ident, $offered:expr; $($field:ident)*) => {
        $(require!(
            $wanted.$field & !$offered.$field == 0,
            concat!("`", stringify!($field), "` has a bit that is not offered")
        );)*
    };
}

impl Offer {
    /// What a program gets for its hints. Before, flags of operations are all that there are;
    /// afterwards they are those that the program has chosen.
    ///
    /// # Errors
    /// The program asks for more, or for something else; the words say for what.
    pub fn answer(mut self, constants: &Constants, hints: &Hints) -> Result<Offer, Refusal> {
        require!(!hints.has_handle, "there are no connection requests");
        require!(
            [sys::FI_FORMAT_UNSPEC, constants.address_format].contains(&hints.address_format),
            "addresses have a format of their own"
        );
        // libfabric itself compares names without case.
        let is_own = |name: &Option<String>, own: &str| {
            name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(own))
        };
        require!(is_own(&hints.fabric_name, constants.fabric), "the fabric has another name");
        require!(is_own(&hints.domain_name, &self.domain_name), "the domain has another name");
        require!(
            hints.provider_version <= constants.provider_version,
            "the provider is older than that"
        );
        if let Some(wanted) = &hints.endpoint {
            check_endpoint(&self.endpoint, wanted)?;
            let bits = |format: u64| u64::BITS - format.leading_zeros();
            require!(
                hints.caps & sys::FI_TAGGED == 0
                    || bits(wanted.mem_tag_format) <= bits(self.endpoint.mem_tag_format),
                "tags don't have as many bits"
            );
        }
        self.check_contexts(hints)?;
        self.transmit.op_flags = hints.transmit.map_or(0, |wanted| wanted.op_flags);
        self.receive.op_flags = hints.receive.map_or(0, |wanted| wanted.op_flags);
        self.receive.total_buffered_recv =
            hints.receive.map_or(0, |wanted| wanted.total_buffered_recv);
        if let Some(wanted) = &hints.domain {
            check_progress(constants, wanted)?;
            check_domain(&self.domain, wanted)?;
            choose(&mut self.domain.threading, wanted.threading);
            choose(&mut self.domain.control_progress, wanted.control_progress);
            choose(&mut self.domain.data_progress, wanted.data_progress);
            choose(&mut self.domain.av_type, wanted.av_type);
        }
        Ok(self)
    }

    /// The attributes of sends and receives.
    fn check_contexts(&self, hints: &Hints) -> Result<(), Refusal> {
        // A direction may name capabilities of the other one, which are left out.
        let all = sys::fi_tx_attr { caps: self.caps, ..self.transmit };
        if let Some(wanted) = &hints.transmit {
            bits_of!(wanted, all; caps op_flags msg_order comp_order);
            at_most!(wanted, self.transmit; inject_size size iov_limit rma_iov_limit);
        }
        let all = sys::fi_rx_attr { caps: self.caps, ..self.receive };
        if let Some(wanted) = &hints.receive {
            bits_of!(wanted, all; caps op_flags msg_order comp_order);
            at_most!(wanted, self.receive; total_buffered_recv size iov_limit);
        }
        Ok(())
    }

    /// Compares what an endpoint is to be opened with: what a program was given, maybe changed.
    ///
    /// # Errors
    /// As for [`Offer::answer`].
    pub fn check_opened(&self, wanted: &Hints) -> Result<(), Refusal> {
        if let Some(endpoint) = &wanted.endpoint {
            check_endpoint(&self.endpoint, endpoint)?;
        }
        if let Some(transmit) = &wanted.transmit {
            bits_of!(transmit, self.transmit; op_flags);
        }
        if let Some(receive) = &wanted.receive {
            bits_of!(receive, self.receive; op_flags);
        }
        Ok(())
    }
}

fn choose<T: Default + PartialEq>(offered: &mut T, wanted: T) {
    if wanted != T::default() {
        *offered = wanted;
    }
}

fn check_endpoint(offered: &sys::fi_ep_attr, wanted: &sys::fi_ep_attr) -> Result<(), Refusal> {
    require!(
        [sys::FI_EP_UNSPEC, offered.r#type].contains(&wanted.r#type),
        "endpoints are of another type"
    );
    require!(
        [sys::FI_PROTO_UNSPEC, offered.protocol].contains(&wanted.protocol),
        "the protocol is another one"
    );
    at_most!(wanted, offered;
        protocol_version max_msg_size max_order_raw_size max_order_war_size max_order_waw_size
        tx_ctx_cnt rx_ctx_cnt auth_key_size
    );
    Ok(())
}

fn check_progress(constants: &Constants, wanted: &sys::fi_domain_attr) -> Result<(), Refusal> {
    require!(
        wanted.data_progress != sys::FI_PROGRESS_AUTO || constants.has_auto_progress,
        "data moves while the program calls (FI_PROGRESS_MANUAL)"
    );
    require!(
        wanted.data_progress <= sys::FI_PROGRESS_CONTROL_UNIFIED
            && wanted.control_progress <= sys::FI_PROGRESS_CONTROL_UNIFIED,
        "the progress model is unknown"
    );
    Ok(())
}

fn check_domain(
    offered: &sys::fi_domain_attr,
    wanted: &sys::fi_domain_attr,
) -> Result<(), Refusal> {
    require!(wanted.threading <= sys::FI_THREAD_ENDPOINT, "the threading model is unknown");
    require!(wanted.resource_mgmt <= sys::FI_RM_ENABLED, "the resource management is unknown");
    require!(wanted.av_type <= sys::FI_AV_TABLE, "the type of address vector is unknown");
    require!(
        wanted.mr_mode & offered.mr_mode == offered.mr_mode,
        "memory is registered in another way (`mr_mode`)"
    );
    bits_of!(wanted, offered; caps);
    at_most!(wanted, offered;
        mr_key_size cq_data_size cq_cnt ep_cnt tx_ctx_cnt rx_ctx_cnt cntr_cnt mr_cnt
        max_ep_tx_ctx max_ep_rx_ctx max_ep_stx_ctx max_ep_srx_ctx mr_iov_limit auth_key_size
        max_err_data
    );
    Ok(())
}
