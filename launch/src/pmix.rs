//! PMIx, by its own library: the protocol between that and a server is nobody else's, and changes.
//!
//! A program with this module starts on a machine without PMIx: `libpmix.so.2` is loaded when a launcher has left
//! its variables. Types and constants are those of `pmix_common.h`, which all versions of that library share.
//!
//! # Spawning
//! It is up to a server whether it has `PMIx_Spawn`; one that hasn't answers `PMIX_ERR_NOT_SUPPORTED`, -47. That of Open
//! MPI 4.1.4's `mpirun` has it, and answers when the new processes run. A command that can't be started it reports
//! itself (`mpirun was unable to launch the specified application`), answers nobody, and ends all jobs with status 132.
//! Where it has fewer slots than processes (no `--oversubscribe`), it reports that, answers with status 69, and doesn't end
//! when all processes have: [`Job::abort`](crate::Job::abort) ends it.
//!
//! A spawned process gets its word in the environment, as `TAGMATCH_PARENT`: that server knows neither `PMIX_SPAWNED` nor
//! `PMIX_PARENT_ID`, and Open MPI itself passes such words on by a variable. A spawned process that starts another
//! launcher of PMIx has to take it out of that one's environment.
#![allow(unsafe_code)]

use std::env;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use crate::alive::Identity;
use crate::spawn::{self, Spawn};

/// Characters of a namespace and of a key, a terminating zero included.
const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;
/// `PMIX_RANK_WILDCARD`: the whole job.
const WHOLE_JOB: u32 = u32::MAX - 1;
/// `PMIX_GLOBAL`: for processes of this machine and of others.
const GLOBAL: u8 = 3;
/// `PMIX_BOOL`, `PMIX_STRING`, `PMIX_UINT32`.
const BOOL: u16 = 1;
const STRING: u16 = 3;
const UINT32: u16 = 14;
const SUCCESS: c_int = 0;

/// `PMIX_JOB_SIZE`, `PMIX_COLLECT_DATA`, `PMIX_OPTIONAL`.
const JOB_SIZE: &str = "pmix.job.size";
const COLLECT: &str = "pmix.collect";
const OPTIONAL: &str = "pmix.optional";
/// Under which each process says who it is.
const IDENTITY: &str = "tagmatch-process";

const LIBRARY: &CStr = c"libpmix.so.2";

/// Why PMIx can't go on.
#[derive(Debug, thiserror::Error)]
pub enum PmixError {
    /// The library isn't there.
    #[error(
        "the launcher speaks PMIx, whose library can't be loaded: {reason}; \
         `apt-get install libpmix2` or MPICH's mpiexec would be right"
    )]
    NotLoaded {
        /// What the loader says.
        reason: String,
    },
    /// A call failed.
    #[error("{call} failed with status {status} of PMIx")]
    Failed {
        /// The call.
        call: &'static str,
        /// Its status, `PMIX_ERR_...` in `pmix_common.h`.
        status: i32,
    },
    /// A value is of another type, or out of bounds.
    #[error("PMIx has no good value of {key}")]
    Value {
        /// Its key.
        key: String,
    },
    /// A text can't be handed over: it has a zero byte, or is a key that is too long.
    #[error("PMIx can't take `{what}`")]
    Unfit {
        /// The text.
        what: String,
    },
}

#[repr(C)]
struct Process {
    namespace: [c_char; NAMESPACE_BYTES],
    rank: u32,
}

#[repr(C)]
union Data {
    flag: bool,
    number: u32,
    string: *mut c_char,
    /// The largest of its members have three words.
    room: [u64; 3],
}

#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

#[repr(C)]
struct Info {
    key: [c_char; KEY_BYTES],
    flags: u32,
    value: Value,
}

#[repr(C)]
struct App {
    command: *mut c_char,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
    directory: *mut c_char,
    processes: c_int,
    settings: *mut Info,
    setting_count: usize,
}

// As a C compiler has them on a machine of 64 bits, for versions 3 to 5.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Process>() == 260);
    assert!(size_of::<Value>() == 32 && std::mem::offset_of!(Value, data) == 8);
    assert!(size_of::<Info>() == 552 && std::mem::offset_of!(Info, value) == 520);
    assert!(size_of::<App>() == 56 && std::mem::offset_of!(App, settings) == 40);
};

impl Info {
    /// A setting that is on or off, on.
    fn set(name: &str) -> Self {
        let mut data = Data { room: [0; 3] };
        data.flag = true;
        let mut key = [0; KEY_BYTES];
        for (to, from) in key[..KEY_BYTES - 1].iter_mut().zip(name.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        Info { key, flags: 0, value: Value { kind: BOOL, data } }
    }
}

/// What this module says of `pmix_common.h`, one fact a line, for a C compiler to check (`ci/parts/headers`).
#[doc(hidden)]
pub fn facts() -> String {
    let pointer = size_of::<usize>();
    let fields = [
        ("pmix_proc_t", "nspace", std::mem::offset_of!(Process, namespace), NAMESPACE_BYTES),
        ("pmix_proc_t", "rank", std::mem::offset_of!(Process, rank), size_of::<u32>()),
        ("pmix_value_t", "type", std::mem::offset_of!(Value, kind), size_of::<u16>()),
        ("pmix_value_t", "data", std::mem::offset_of!(Value, data), size_of::<Data>()),
        ("pmix_value_t", "data.flag", std::mem::offset_of!(Value, data), size_of::<bool>()),
        ("pmix_value_t", "data.uint32", std::mem::offset_of!(Value, data), size_of::<u32>()),
        ("pmix_value_t", "data.string", std::mem::offset_of!(Value, data), size_of::<usize>()),
        ("pmix_info_t", "key", std::mem::offset_of!(Info, key), KEY_BYTES),
        ("pmix_info_t", "flags", std::mem::offset_of!(Info, flags), size_of::<u32>()),
        ("pmix_info_t", "value", std::mem::offset_of!(Info, value), size_of::<Value>()),
        ("pmix_app_t", "cmd", std::mem::offset_of!(App, command), pointer),
        ("pmix_app_t", "argv", std::mem::offset_of!(App, arguments), pointer),
        ("pmix_app_t", "env", std::mem::offset_of!(App, environment), pointer),
        ("pmix_app_t", "cwd", std::mem::offset_of!(App, directory), pointer),
        ("pmix_app_t", "maxprocs", std::mem::offset_of!(App, processes), size_of::<c_int>()),
        ("pmix_app_t", "info", std::mem::offset_of!(App, settings), pointer),
        ("pmix_app_t", "ninfo", std::mem::offset_of!(App, setting_count), pointer),
    ];
    let sizes = [
        ("pmix_proc_t", size_of::<Process>()),
        ("pmix_value_t", size_of::<Value>()),
        ("pmix_info_t", size_of::<Info>()),
        ("pmix_app_t", size_of::<App>()),
    ];
    let values = [
        ("PMIX_RANK_WILDCARD", i64::from(WHOLE_JOB)),
        ("PMIX_GLOBAL", GLOBAL.into()),
        ("PMIX_BOOL", BOOL.into()),
        ("PMIX_STRING", STRING.into()),
        ("PMIX_UINT32", UINT32.into()),
        ("PMIX_SUCCESS", SUCCESS.into()),
    ];
    let texts =
        [("PMIX_JOB_SIZE", JOB_SIZE), ("PMIX_COLLECT_DATA", COLLECT), ("PMIX_OPTIONAL", OPTIONAL)];
    let sizes = sizes.map(|(of, size)| format!("SIZE({of}, {size})\n"));
    let fields = fields.map(|(of, name, at, size)| format!("FIELD({of}, {name}, {at}, {size})\n"));
    let values = values.map(|(name, value)| format!("VALUE({name}, {value})\n"));
    let texts = texts.map(|(name, text)| format!("TEXT({name}, \"{text}\")\n"));
    [sizes.concat(), fields.concat(), values.concat(), texts.concat()].concat()
}

/// The functions of the library.
struct Functions {
    init: unsafe extern "C" fn(*mut Process, *mut Info, usize) -> c_int,
    finalize: unsafe extern "C" fn(*const Info, usize) -> c_int,
    abort: unsafe extern "C" fn(c_int, *const c_char, *mut Process, usize) -> c_int,
    put: unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int,
    commit: unsafe extern "C" fn() -> c_int,
    fence: unsafe extern "C" fn(*const Process, usize, *const Info, usize) -> c_int,
    get: unsafe extern "C" fn(
        *const Process,
        *const c_char,
        *const Info,
        usize,
        *mut *mut Value,
    ) -> c_int,
    spawn: unsafe extern "C" fn(*const Info, usize, *const App, usize, *mut c_char) -> c_int,
}

impl Functions {
    /// Loads the library for good.
    fn load(path: &CStr) -> Result<Self, PmixError> {
        // SAFETY: a terminated string; loading libpmix does nothing by itself.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(PmixError::NotLoaded { reason: last_error() });
        }
        let find = |name: &CStr| {
            // SAFETY: the library was just loaded, and is never unloaded.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            if found.is_null() {
                return Err(PmixError::NotLoaded { reason: last_error() });
            }
            Ok(found)
        };
        // SAFETY: functions of these names in libpmix.so.2 have these types (pmix.h).
        unsafe {
            Ok(Functions {
                init: function(find(c"PMIx_Init")?),
                finalize: function(find(c"PMIx_Finalize")?),
                abort: function(find(c"PMIx_Abort")?),
                put: function(find(c"PMIx_Put")?),
                commit: function(find(c"PMIx_Commit")?),
                fence: function(find(c"PMIx_Fence")?),
                get: function(find(c"PMIx_Get")?),
                spawn: function(find(c"PMIx_Spawn")?),
            })
        }
    }
}

/// # Safety
/// `F` is the type of the function at this address.
unsafe fn function<F: Copy>(address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: as the caller says; a function's pointer is as large as any.
    unsafe { std::mem::transmute_copy(&address) }
}

fn last_error() -> String {
    // SAFETY: null, or a string of this thread that lives until its next call of the loader.
    unsafe {
        let reason = libc::dlerror();
        if reason.is_null() {
            return "the loader gives no reason".into();
        }
        CStr::from_ptr(reason).to_string_lossy().into_owned()
    }
}

/// A process's part in a job of PMIx.
pub struct Pmix {
    functions: Functions,
    own: Process,
    size: u32,
    /// This process, if the kernel says who that is.
    identity: Option<Identity>,
    /// Who the others are, by rank, as far as they were asked for and known.
    others: Vec<Option<Identity>>,
}

impl std::fmt::Debug for Pmix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pmix").field("rank", &self.own.rank).field("size", &self.size).finish()
    }
}

impl Pmix {
    /// Connects as the environment says; `None` if it names no server of PMIx. Once in a process.
    ///
    /// # Errors
    /// The library isn't there, or finds no server.
    pub fn from_env() -> Result<Option<Self>, PmixError> {
        if env::var_os("PMIX_NAMESPACE").is_none() {
            return Ok(None);
        }
        let functions = Functions::load(LIBRARY)?;
        let mut own = Process { namespace: [0; NAMESPACE_BYTES], rank: 0 };
        // SAFETY: a structure to be filled, and no settings.
        let status = unsafe { (functions.init)(&raw mut own, ptr::null_mut(), 0) };
        checked("PMIx_Init", status)?;
        let (identity, others) = (Identity::own().ok(), Vec::new());
        let mut pmix = Pmix { functions, own, size: 0, identity, others };
        let wrong = || PmixError::Value { key: JOB_SIZE.to_owned() };
        let value = pmix.value(WHOLE_JOB, JOB_SIZE, &[])?;
        pmix.size = value.number().ok_or_else(wrong)?;
        if !(1..=crate::pmi1::SIZE_MAX).contains(&pmix.size) || pmix.own.rank >= pmix.size {
            return Err(wrong());
        }
        pmix.others.resize(pmix.size as usize, None);
        if let Some(identity) = &pmix.identity {
            let identity = identity.to_string();
            pmix.put(IDENTITY, &identity)?;
        }
        Ok(Some(pmix))
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.own.rank
    }

    /// How many processes the job has.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Puts a value under a key of this process; others see it after a fence.
    ///
    /// # Errors
    /// The key is too long, or the server has gone.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PmixError> {
        let (key, string) = (c_key(key)?, c_string(value)?);
        let data = Data { string: string.as_ptr().cast_mut() };
        let mut value = Value { kind: STRING, data };
        // SAFETY: a terminated key; a value of the kind it says. Both are copied, neither is changed.
        let put = unsafe { (self.functions.put)(GLOBAL, key.as_ptr(), &raw mut value) };
        checked("PMIx_Put", put)?;
        // SAFETY: sends what was put.
        checked("PMIx_Commit", unsafe { (self.functions.commit)() })
    }

    /// Waits for all processes of the job, and collects what they have put.
    ///
    /// # Errors
    /// A process or the server has gone.
    pub fn fence(&mut self) -> Result<(), PmixError> {
        let collect = Info::set(COLLECT);
        // SAFETY: no list of processes is all of them; one setting, which is read.
        let status = unsafe { (self.functions.fence)(ptr::null(), 0, &raw const collect, 1) };
        checked("PMIx_Fence", status)
    }

    /// What a process has put under a key.
    ///
    /// # Errors
    /// It has put nothing, or no text.
    pub fn get(&self, rank: u32, key: &str) -> Result<String, PmixError> {
        let value = self.value(rank, key, &[])?;
        value.text().ok_or_else(|| PmixError::Value { key: key.to_owned() })
    }

    /// Ranks of processes of this machine that are gone, of those that have said before a fence who they are.
    pub fn dead(&mut self) -> Vec<u32> {
        let Some(own) = &self.identity else { return Vec::new() };
        let mut dead = Vec::new();
        for (rank, known) in (0..self.size).zip(0..) {
            if self.others[known].is_none() {
                // What isn't here is not waited for.
                let said = self.value(rank, IDENTITY, &[Info::set(OPTIONAL)]);
                let said = said.ok().and_then(|said| said.text());
                self.others[known] = said.and_then(|said| Identity::parse(&said));
            }
            if self.others[known].as_ref().is_some_and(|other| other.is_gone(own)) {
                dead.push(rank);
            }
        }
        dead
    }

    /// The word that the process that has spawned this one has left for it in the environment; `None` if it has none.
    pub fn parent(&self) -> Option<String> {
        env::var_os(spawn::PARENT).map(|word| word.to_string_lossy().into_owned())
    }

    /// Asks the server for a job of this command (`PMIx_Spawn`), and waits for the answer.
    ///
    /// # Errors
    /// The server has gone, refuses, or can't spawn (`PMIX_ERR_NOT_SUPPORTED`, -47); a word has a zero byte.
    pub(crate) fn spawn(&mut self, spawn: &Spawn, word: &str) -> Result<(), PmixError> {
        let words: Result<Vec<_>, _> = spawn.command.iter().map(c_string).collect();
        let words = words?;
        let word = c_string(format!("{}={word}", spawn::PARENT))?;
        let mut arguments: Vec<_> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
        arguments.push(ptr::null_mut());
        let mut environment = [word.as_ptr().cast_mut(), ptr::null_mut()];
        let app = App {
            command: arguments[0],
            arguments: arguments.as_mut_ptr(),
            environment: environment.as_mut_ptr(),
            directory: ptr::null_mut(),
            processes: c_int::try_from(spawn.size).unwrap_or(c_int::MAX),
            settings: ptr::null_mut(),
            setting_count: 0,
        };
        // SAFETY: no settings; one application of terminated strings in terminated lists, which is read; nobody wants
        // the new job's name.
        let status =
            unsafe { (self.functions.spawn)(ptr::null(), 0, &raw const app, 1, ptr::null_mut()) };
        checked("PMIx_Spawn", status)
    }

    fn value(&self, rank: u32, key: &str, how: &[Info]) -> Result<Found, PmixError> {
        let c_key = c_key(key)?;
        let of = Process { namespace: self.own.namespace, rank };
        let mut value: *mut Value = ptr::null_mut();
        let (settings, count) = (how.as_ptr(), how.len());
        // SAFETY: a process, a terminated key and so many settings, which are read; a place for the value, which is
        // ours then.
        let status = unsafe {
            (self.functions.get)(&raw const of, c_key.as_ptr(), settings, count, &raw mut value)
        };
        checked("PMIx_Get", status)?;
        if value.is_null() {
            return Err(PmixError::Value { key: key.to_owned() });
        }
        Ok(Found(value))
    }

    /// Ends the connection: from now on this process's end is no failure.
    ///
    /// # Errors
    /// The server has gone.
    pub fn finalize(self) -> Result<(), PmixError> {
        // SAFETY: no settings; nothing is called afterwards.
        checked("PMIx_Finalize", unsafe { (self.functions.finalize)(ptr::null(), 0) })
    }

    /// Asks for the end of the whole job with this status.
    ///
    /// # Errors
    /// The server has gone, or doesn't do it.
    pub fn abort(self, status: u8) -> Result<(), PmixError> {
        let status = c_int::from(status);
        let why = c"aborted";
        // SAFETY: a terminated string; no list of processes is all of them.
        let result = unsafe { (self.functions.abort)(status, why.as_ptr(), ptr::null_mut(), 0) };
        checked("PMIx_Abort", result)
    }
}

/// A value that the library has allocated for us, not null.
struct Found(*mut Value);

impl Found {
    fn number(&self) -> Option<u32> {
        // SAFETY: a value of the library; its kind says which member is there.
        unsafe { ((*self.0).kind == UINT32).then(|| (*self.0).data.number) }
    }

    fn text(&self) -> Option<String> {
        // SAFETY: as above; a string of it is terminated, or null.
        unsafe {
            let string = ((*self.0).kind == STRING).then(|| (*self.0).data.string)?;
            (!string.is_null()).then(|| CStr::from_ptr(string).to_string_lossy().into_owned())
        }
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: allocated by malloc, the string too (PMIX_VALUE_RELEASE frees both so), and ours. What a value of
        // another kind holds is left: none is asked for.
        unsafe {
            if (*self.0).kind == STRING {
                libc::free((*self.0).data.string.cast());
            }
            libc::free(self.0.cast());
        }
    }
}

fn checked(call: &'static str, status: c_int) -> Result<(), PmixError> {
    if status == SUCCESS { Ok(()) } else { Err(PmixError::Failed { call, status }) }
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
    fn a_library_that_is_missing_or_another_is_said_in_one_line() {
        let missing = Functions::load(c"libpmix-of-nobody.so").map(drop).unwrap_err().to_string();
        assert!(missing.contains("libpmix-of-nobody.so") && missing.contains("libpmix2"));
        let other = Functions::load(c"libc.so.6").map(drop).unwrap_err().to_string();
        assert!(other.contains("PMIx_Init"), "{other}");
        for line in [missing, other] {
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn keys_are_bounded() {
        assert!(c_key(&"k".repeat(KEY_BYTES - 1)).is_ok());
        assert!(c_key(&"k".repeat(KEY_BYTES)).is_err());
        assert!(c_key("a\0b").is_err());
    }
}
