//! PMIx, through its own library. The protocol between the library and a server is private to PMIx,
//! and changes between versions.
//!
//! A program with this module also starts on a machine without PMIx: `libpmix.so.2` is loaded only
//! if a launcher has set the variables of PMIx.
//!
//! # Spawning
//! A server need not support `PMIx_Spawn`. If it doesn't, it answers `PMIX_ERR_NOT_SUPPORTED`, -47,
//! as that of `srun --mpi=pmix` does.
//! The server in `mpirun` of Open MPI 4.1.4 supports it:
//!
//! - It answers when the new processes run.
//! - If a command can't be started, it reports this itself (`mpirun was unable to launch the
//!   specified application`), doesn't answer, and ends all jobs with status 132.
//! - If it has fewer slots than processes (without `--oversubscribe`), it reports this, answers
//!   with status 69, and keeps running after all processes have ended.
//!   [`Job::abort`](crate::Job::abort) ends it.
//!
//! A spawned process gets its parent's string in the environment, as `TAGMATCH_PARENT`: that server
//! knows neither `PMIX_SPAWNED` nor `PMIX_PARENT_ID`, and Open MPI itself uses a variable for this.
//! A spawned process that starts another PMIx launcher has to remove the variable from that
//! launcher's environment.
#![allow(unsafe_code)]

mod layout;

use std::env;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tagmatch_secret::SECRET;
use tagmatch_sys::load;

use crate::identity::Identity;
use crate::pmi1::ranks;
use crate::spawn::{PARENT_KEY, SIZE_MAX, Spawn};
#[doc(hidden)]
pub use layout::facts;
use layout::{KEY_BYTES, PMIX_COLLECT_DATA, PMIX_IMMEDIATE, PMIX_JOB_SIZE, PMIX_LOCAL_PEERS};
use layout::{PMIX_GLOBAL, PMIX_LOCAL, PMIX_RANK_WILDCARD, PMIX_STRING, PMIX_SUCCESS};
use layout::{PMIX_OPTIONAL, PMIX_UINT32};
use layout::{pmix_app_t, pmix_info_t, pmix_proc_t, pmix_value_data, pmix_value_t};

const LIBRARY: &CStr = c"libpmix.so.2";
/// The key under which each process publishes its [`Identity`].
const IDENTITY: &str = "tagmatch-process";

/// When a process that waits in a fence first looks which processes of its machine have ended. The
/// time doubles with each look.
const LOOK_TIME: Duration = Duration::from_millis(500);
const LOOK_TIME_MAX: Duration = Duration::from_secs(8);

/// Who can get a value after a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// The processes of this machine.
    Machine,
    /// All processes of the job.
    Job,
}

/// Errors of PMIx.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmixError {
    /// The library can't be loaded.
    #[error(
        "the launcher speaks PMIx, but the PMIx library can't be loaded: {reason}; \
         run `apt-get install libpmix2`, or launch with MPICH's mpiexec"
    )]
    NotLoaded {
        /// The loader's message.
        reason: String,
    },
    /// A call failed.
    #[error("{call} failed with PMIx status {status}{}", meaning(*status))]
    Failed {
        /// The name of the call.
        call: &'static str,
        /// The status, `PMIX_ERR_...` in `pmix_common.h`.
        status: i32,
    },
    /// The server can't start jobs for a process.
    #[error(
        "this launcher's PMIx server starts no jobs for a process (PMIX_ERR_NOT_SUPPORTED); use `tagperf \
         run`, MPICH's mpiexec, `srun --mpi=pmi2` or Open MPI 4's mpirun"
    )]
    NoSpawn,
    /// A value has the wrong type, or is out of range.
    #[error("PMIx has no valid value for {key}")]
    Value {
        /// The key of the value.
        key: String,
    },
    /// A text can't be passed to PMIx: it has a zero byte, or it is a key that is too long.
    #[error("`{what}` can't be passed to PMIx: it has a zero byte, or is too long")]
    Unfit {
        /// The text.
        what: String,
    },
}

/// The functions of libpmix.
struct Functions {
    init: unsafe extern "C" fn(*mut pmix_proc_t, *mut pmix_info_t, usize) -> c_int,
    finalize: unsafe extern "C" fn(*const pmix_info_t, usize) -> c_int,
    abort: unsafe extern "C" fn(c_int, *const c_char, *mut pmix_proc_t, usize) -> c_int,
    put: unsafe extern "C" fn(u8, *const c_char, *mut pmix_value_t) -> c_int,
    commit: unsafe extern "C" fn() -> c_int,
    fence: unsafe extern "C" fn(*const pmix_proc_t, usize, *const pmix_info_t, usize) -> c_int,
    fence_nb: unsafe extern "C" fn(
        *const pmix_proc_t,
        usize,
        *const pmix_info_t,
        usize,
        unsafe extern "C" fn(c_int, *mut c_void),
        *mut c_void,
    ) -> c_int,
    get: unsafe extern "C" fn(
        *const pmix_proc_t,
        *const c_char,
        *const pmix_info_t,
        usize,
        *mut *mut pmix_value_t,
    ) -> c_int,
    spawn: unsafe extern "C" fn(
        *const pmix_info_t,
        usize,
        *const pmix_app_t,
        usize,
        *mut c_char,
    ) -> c_int,
}

impl Functions {
    /// Loads the library. It is never unloaded.
    fn load(path: &CStr) -> Result<Self, PmixError> {
        let not_loaded = |reason| PmixError::NotLoaded { reason };
        // SAFETY: loading libpmix alone has no effect on this process. The functions with these
        // names in libpmix.so.2 have these types (pmix.h).
        unsafe {
            let library = load::open(path, libc::RTLD_NOW).map_err(not_loaded)?;
            let find = |name| load::symbol(library, name, None).map_err(not_loaded);
            Ok(Functions {
                init: function(find("PMIx_Init")?),
                finalize: function(find("PMIx_Finalize")?),
                abort: function(find("PMIx_Abort")?),
                put: function(find("PMIx_Put")?),
                commit: function(find("PMIx_Commit")?),
                fence: function(find("PMIx_Fence")?),
                fence_nb: function(find("PMIx_Fence_nb")?),
                get: function(find("PMIx_Get")?),
                spawn: function(find("PMIx_Spawn")?),
            })
        }
    }
}

/// The function at an address.
///
/// # Safety
/// `F` is the type of the function at this address.
unsafe fn function<F: Copy>(address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller guarantees the type; the sizes were compared above.
    unsafe { std::mem::transmute_copy(&address) }
}

/// A process's connection to its PMIx server.
pub struct Pmix {
    functions: Functions,
    /// The attribute of a fence that brings values. It is leaked, once in a process: the library
    /// may read it until a fence has ended, and nobody waits for some.
    collect: &'static pmix_info_t,
    own: pmix_proc_t,
    size: u32,
    /// The identity of this process, if /proc gives it.
    identity: Option<Identity>,
    /// The identities of all processes by rank, as far as they are known.
    others: Vec<Option<Identity>>,
    /// The process that was the first to be found dead. Others may end later because it has.
    first_dead: Option<u32>,
}

impl std::fmt::Debug for Pmix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pmix").field("rank", &self.own.rank).field("size", &self.size).finish()
    }
}

impl Pmix {
    /// Connects to the server that the environment names; `None` if it names no PMIx server. May be
    /// called once in a process.
    ///
    /// # Errors
    /// The library can't be loaded, or finds no server.
    pub fn from_env() -> Result<Option<Self>, PmixError> {
        if env::var_os("PMIX_NAMESPACE").is_none() {
            return Ok(None);
        }
        let functions = Functions::load(LIBRARY)?;
        let mut own = pmix_proc_t::zeroed();
        // SAFETY: `own` is a structure that the call fills in; there are no attributes.
        let status = unsafe { (functions.init)(&raw mut own, ptr::null_mut(), 0) };
        checked("PMIx_Init", status)?;
        let identity = Identity::own().ok();
        let others = Vec::new();
        let collect = Box::leak(Box::new(pmix_info_t::set(PMIX_COLLECT_DATA)));
        let size = 0;
        let first_dead = None;
        let mut pmix = Pmix { functions, collect, own, size, identity, others, first_dead };
        let wrong = || PmixError::Value { key: PMIX_JOB_SIZE.to_owned() };
        let value = pmix.value(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &[])?;
        pmix.size = value.number().ok_or_else(wrong)?;
        if !(1..=SIZE_MAX).contains(&pmix.size) || pmix.own.rank >= pmix.size {
            return Err(wrong());
        }
        pmix.others.resize(pmix.size as usize, None);
        if let Some(identity) = &pmix.identity {
            let identity = identity.to_string();
            // Only processes of this machine can ask the kernel.
            pmix.put_for(Reach::Machine, IDENTITY, &identity)?;
        }
        Ok(Some(pmix))
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.own.rank
    }

    /// The number of processes in the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Puts a value under a key of this process. Other processes can get it after a fence.
    ///
    /// # Errors
    /// The key is too long, or the connection to the server is lost.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PmixError> {
        self.put_for(Reach::Job, key, value)
    }

    /// As [`put`](Self::put), for these processes.
    pub(crate) fn put_for(
        &mut self,
        reach: Reach,
        key: &str,
        value: &str,
    ) -> Result<(), PmixError> {
        let scope = match reach {
            Reach::Machine => PMIX_LOCAL,
            Reach::Job => PMIX_GLOBAL,
        };
        let key = c_key(key)?;
        let string = c_string(value)?;
        let data = pmix_value_data { string: string.as_ptr().cast_mut() };
        let mut value = pmix_value_t { type_: PMIX_STRING, data };
        // SAFETY: the key is terminated, and `type_` tells which member of `data` is set. The
        // library copies both, and changes neither.
        let put = unsafe { (self.functions.put)(scope, key.as_ptr(), &raw mut value) };
        checked("PMIx_Put", put)?;
        // SAFETY: the call has no arguments; it sends the values that were put.
        checked("PMIx_Commit", unsafe { (self.functions.commit)() })
    }

    /// Waits until all processes of the job have called this, except those that the server knows to
    /// have ended, and collects the values that the processes have put.
    ///
    /// # Errors
    /// The connection to the server is lost, or the server fails.
    pub fn fence(&mut self) -> Result<(), PmixError> {
        // SAFETY: a null list of processes means all of them. The attribute is only read.
        let status = unsafe { (self.functions.fence)(ptr::null(), 0, self.collect, 1) };
        if status == PARTIAL_SUCCESS { Ok(()) } else { checked("PMIx_Fence", status) }
    }

    /// As [`fence`](Self::fence), for values that were put for these processes. Also ends when a
    /// process of this machine is known to have ended, with its rank: servers let some processes
    /// wait for ever after a death (Open MPI 4.1: those that call a moment later than others).
    pub(crate) fn fence_of_all(&mut self, reach: Reach) -> Result<Option<u32>, PmixError> {
        let fence = Arc::new(Fence::default());
        let count = usize::from(reach == Reach::Job);
        let data = Arc::into_raw(Arc::clone(&fence));
        // SAFETY: a null list of processes means all of them. The attribute is only read, and lives
        // for ever. `data` owns a count of its `Arc`, which `fence_ended` takes.
        let status = unsafe {
            let call = self.functions.fence_nb;
            let data = data.cast_mut().cast();
            call(ptr::null(), 0, self.collect, count, fence_ended, data)
        };
        if status != PMIX_SUCCESS {
            // SAFETY: the fence was refused or is over, so the library doesn't call `fence_ended`.
            drop(unsafe { Arc::from_raw(data) });
            let is_over = status == OPERATION_SUCCEEDED;
            return if is_over {
                Ok(None)
            } else {
                checked("PMIx_Fence_nb", status).map(|()| None)
            };
        }
        let mut time = LOOK_TIME;
        loop {
            if let Some(status) = fence.wait(time) {
                if status == PARTIAL_SUCCESS && !self.dead().is_empty() {
                    return Ok(self.first_dead);
                }
                return checked("PMIx_Fence", status).map(|()| None);
            }
            if !self.dead().is_empty() {
                return Ok(self.first_dead);
            }
            time = (2 * time).min(LOOK_TIME_MAX);
        }
    }

    /// The value that a process has put under a key, before the last fence. Doesn't wait for it:
    /// `None` if there is none.
    ///
    /// # Errors
    /// The connection to the server is lost, or the value is not a string.
    pub fn get(&self, rank: u32, key: &str) -> Result<Option<String>, PmixError> {
        // Without the attribute, the server would wait for a value that a process hasn't put yet,
        // also if the process has ended.
        match self.value(rank, key, &[pmix_info_t::set(PMIX_IMMEDIATE)]) {
            Err(PmixError::Failed { status: NOT_FOUND, .. }) => Ok(None),
            value => {
                let wrong = || PmixError::Value { key: key.to_owned() };
                value?.text().ok_or_else(wrong).map(Some)
            }
        }
    }

    /// The ranks of the processes of this machine, in ascending order; empty if the server doesn't
    /// say.
    pub(crate) fn peers_here(&self) -> Vec<u32> {
        let optional = [pmix_info_t::set(PMIX_OPTIONAL)];
        let list = self.value(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS, &optional);
        let list = list.ok().and_then(|list| list.text()).unwrap_or_default();
        ranks(&list, self.size).unwrap_or_default()
    }

    /// Ranks of the processes that have ended, among those of this machine whose identity a fence
    /// has brought here.
    pub fn dead(&mut self) -> Vec<u32> {
        let mut dead = Vec::new();
        for rank in self.peers_here() {
            let known = rank as usize;
            if self.others[known].is_none() {
                // PMIX_OPTIONAL: the call doesn't wait for a value that isn't here.
                let value = self.value(rank, IDENTITY, &[pmix_info_t::set(PMIX_OPTIONAL)]);
                let text = value.ok().and_then(|value| value.text());
                self.others[known] = text.and_then(|text| Identity::parse(&text));
            }
            let (Some(other), Some(own)) = (&self.others[known], &self.identity) else { continue };
            if other.is_gone(own) {
                dead.push(rank);
            }
        }
        self.first_dead = self.first_dead.or(dead.first().copied());
        dead
    }

    /// The string that the parent process passed in the environment when it spawned this process;
    /// `None` if there is none.
    pub fn parent(&self) -> Option<String> {
        env::var_os(PARENT_KEY).map(|word| word.to_string_lossy().into_owned())
    }

    /// Asks the server to start a job (`PMIx_Spawn`), and waits for the answer.
    ///
    /// # Errors
    /// The server refuses or can't spawn ([`NoSpawn`](PmixError::NoSpawn)), the connection to it is
    /// lost, or a word of the command has a zero byte.
    pub(crate) fn spawn(
        &mut self,
        spawn: &Spawn,
        word: &str,
        secret: Option<&str>,
    ) -> Result<(), PmixError> {
        let words: Result<Vec<_>, _> = spawn.command.iter().map(c_string).collect();
        let words = words?;
        let word = c_string(format!("{PARENT_KEY}={word}"))?;
        let mut arguments: Vec<_> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
        arguments.push(ptr::null_mut());
        let secret = secret.map(|secret| c_string(format!("{SECRET}={secret}"))).transpose()?;
        let secret = secret.as_ref().map_or(ptr::null_mut(), |secret| secret.as_ptr().cast_mut());
        let mut environment = [word.as_ptr().cast_mut(), secret, ptr::null_mut()];
        let mut app = pmix_app_t::zeroed();
        app.cmd = arguments[0];
        app.argv = arguments.as_mut_ptr();
        app.env = environment.as_mut_ptr();
        app.maxprocs = c_int::try_from(spawn.size).unwrap_or(c_int::MAX);
        // SAFETY: there are no attributes. The one command, which is only read, has terminated
        // strings in terminated lists, and all of them live until the call returns. A null pointer
        // means that the new job's name isn't wanted.
        let status =
            unsafe { (self.functions.spawn)(ptr::null(), 0, &raw const app, 1, ptr::null_mut()) };
        spawned(status)
    }

    fn value(&self, rank: u32, key: &str, how: &[pmix_info_t]) -> Result<OwnedValue, PmixError> {
        let c_key = c_key(key)?;
        let of = pmix_proc_t { nspace: self.own.nspace, rank };
        let mut value: *mut pmix_value_t = ptr::null_mut();
        let settings = how.as_ptr();
        let count = how.len();
        // SAFETY: the process, the terminated key and the `count` attributes are only read. The
        // call stores a pointer to a value that belongs to us.
        let status = unsafe {
            (self.functions.get)(&raw const of, c_key.as_ptr(), settings, count, &raw mut value)
        };
        checked("PMIx_Get", status)?;
        if value.is_null() {
            return Err(PmixError::Value { key: key.to_owned() });
        }
        Ok(OwnedValue(value))
    }

    /// Ends the connection. From now on, the server doesn't count the end of this process as a
    /// failure.
    ///
    /// # Errors
    /// The connection to the server is lost.
    pub fn finalize(self) -> Result<(), PmixError> {
        // SAFETY: there are no attributes, and no PMIx function is called afterwards.
        checked("PMIx_Finalize", unsafe { (self.functions.finalize)(ptr::null(), 0) })
    }

    /// Asks the server to end the whole job with this status.
    ///
    /// # Errors
    /// The connection to the server is lost, or the server refuses.
    pub fn abort(self, status: u8) -> Result<(), PmixError> {
        let status = c_int::from(status);
        let why = c"aborted";
        // SAFETY: the message is a terminated string. A null list of processes means all of them.
        let result = unsafe { (self.functions.abort)(status, why.as_ptr(), ptr::null_mut(), 0) };
        checked("PMIx_Abort", result)
    }
}

/// A value that the library has allocated for us. The pointer is not null.
struct OwnedValue(*mut pmix_value_t);

impl OwnedValue {
    fn number(&self) -> Option<u32> {
        // SAFETY: the pointer is to a value of the library. `type_` tells which member is set.
        unsafe { ((*self.0).type_ == PMIX_UINT32).then(|| (*self.0).data.uint32) }
    }

    fn text(&self) -> Option<String> {
        // SAFETY: the pointer is to a value of the library. `type_` tells which member is set.
        // A string is terminated, or null.
        unsafe {
            let string = ((*self.0).type_ == PMIX_STRING).then(|| (*self.0).data.string)?;
            (!string.is_null()).then(|| CStr::from_ptr(string).to_string_lossy().into_owned())
        }
    }
}

impl Drop for OwnedValue {
    fn drop(&mut self) {
        // SAFETY: the value and its string belong to us and were allocated by malloc:
        // PMIX_VALUE_RELEASE frees both with free. A value of another kind is not expected, and its
        // content would not be freed.
        unsafe {
            if (*self.0).type_ == PMIX_STRING {
                libc::free((*self.0).data.string.cast());
            }
            libc::free(self.0.cast());
        }
    }
}

/// The statuses that a user meets, in words (pmix_common.h).
fn meaning(status: c_int) -> &'static str {
    match status {
        -24 => " (PMIX_ERR_TIMEOUT: the server didn't answer in time)",
        -25 => " (PMIX_ERR_UNREACH: there is no server at the place that the environment names)",
        NOT_FOUND => " (PMIX_ERR_NOT_FOUND: the server doesn't know it)",
        NOT_SUPPORTED => " (PMIX_ERR_NOT_SUPPORTED: the server doesn't do this)",
        -61 | -101 => " (PMIX_ERR_LOST_CONNECTION: the server has gone)",
        PARTIAL_SUCCESS => " (PMIX_ERR_PARTIAL_SUCCESS: a process has ended meanwhile)",
        -50 => " (PMIX_ERR_UNPACK_READ_PAST_END_OF_BUFFER: Slurm says so if a process has died)",
        _ => "",
    }
}

const NOT_FOUND: c_int = -46;
const NOT_SUPPORTED: c_int = -47;
/// What a call that doesn't wait returns if the operation is over already.
const OPERATION_SUCCEEDED: c_int = -157;
/// What servers answer to a fence in which a process has ended (Open MPI 4.1, Slurm 22.05).
pub(crate) const PARTIAL_SUCCESS: c_int = -52;

/// A fence that the library carries out.
#[derive(Default)]
struct Fence {
    status: Mutex<Option<c_int>>,
    ended: Condvar,
}

impl Fence {
    /// The fence's status, if it ends within this time.
    fn wait(&self, time: Duration) -> Option<c_int> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(status, time, |status| status.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Called once, by a thread of the library, when a fence has ended.
unsafe extern "C" fn fence_ended(status: c_int, data: *mut c_void) {
    // SAFETY: `data` is the `Arc` that `fence_of_all` has given to this fence alone.
    let fence = unsafe { Arc::from_raw(data.cast_const().cast::<Fence>()) };
    *fence.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    fence.ended.notify_all();
}

fn spawned(status: c_int) -> Result<(), PmixError> {
    if status == NOT_SUPPORTED { Err(PmixError::NoSpawn) } else { checked("PMIx_Spawn", status) }
}

fn checked(call: &'static str, status: c_int) -> Result<(), PmixError> {
    if status == PMIX_SUCCESS { Ok(()) } else { Err(PmixError::Failed { call, status }) }
}

fn c_string(text: impl AsRef<OsStr>) -> Result<CString, PmixError> {
    let bytes = text.as_ref().as_bytes();
    CString::new(bytes).map_err(|_| PmixError::Unfit { what: bytes.escape_ascii().to_string() })
}

fn c_key(key: &str) -> Result<CString, PmixError> {
    if key.len() >= KEY_BYTES {
        return Err(PmixError::Unfit { what: key.escape_debug().to_string() });
    }
    c_string(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_wrong_library_is_an_error_of_one_line() {
        let missing = Functions::load(c"libpmix-of-nobody.so").map(drop).unwrap_err().to_string();
        assert!(missing.contains("libpmix-of-nobody.so") && missing.contains("libpmix2"));
        let other = Functions::load(c"libc.so.6").map(drop).unwrap_err().to_string();
        assert!(other.contains("PMIx_Init"), "{other}");
        for line in [missing, other] {
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn a_status_is_told_in_words() {
        let refused = spawned(-47).unwrap_err().to_string();
        assert!(refused.contains("starts no jobs") && refused.contains("tagperf run"), "{refused}");
        let lost = checked("PMIx_Fence", -101).unwrap_err().to_string();
        assert!(lost.contains("-101 (PMIX_ERR_LOST_CONNECTION: "), "{lost}");
        assert!(checked("PMIx_Fence", -9999).unwrap_err().to_string().ends_with("-9999"));
        assert!(spawned(0).is_ok() && matches!(spawned(-1), Err(PmixError::Failed { .. })));
    }

    #[test]
    fn keys_are_bounded() {
        assert!(c_key(&"k".repeat(KEY_BYTES - 1)).is_ok());
        assert!(c_key(&"k".repeat(KEY_BYTES)).is_err());
        assert!(c_key("a\0b").is_err());
    }
}
