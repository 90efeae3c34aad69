//! The library to preload. It exports the functions of libibverbs that have to know emulated
//! devices; their code is that of [`tagmatch_emu`].

macro_rules! preloaded {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "(3)`.")]
        ///
        /// # Safety
        /// As the manual page of the function says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: handed on.
            unsafe { tagmatch_emu::library_calls::$name($($argument),*) }
        }
    )*};
}

use std::ffi::c_void;

use tagmatch_rdma_core_sys::{
    ibv_context, ibv_cq, ibv_device, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_srq, ibv_srq_attr,
};

preloaded! {
    ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    ibv_import_device(cmd_fd: i32) -> *mut ibv_context;
    ibv_close_device(context: *mut ibv_context) -> i32;
    ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: i32) -> i32;
    ibv_destroy_qp(qp: *mut ibv_qp) -> i32;
    ibv_destroy_cq(cq: *mut ibv_cq) -> i32;
    ibv_destroy_srq(srq: *mut ibv_srq) -> i32;
    ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: i32) -> i32;
    ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> i32;
    ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: i32) -> *mut ibv_mr;
    ibv_reg_mr_iova(
        pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: i32
    ) -> *mut ibv_mr;
    ibv_reg_mr_iova2(
        pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: u32
    ) -> *mut ibv_mr;
    ibv_rereg_mr(
        mr: *mut ibv_mr, flags: i32, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: i32
    ) -> i32;
    ibv_dereg_mr(mr: *mut ibv_mr) -> i32;
}
