//! How each program is started, and the environment of all of them.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use super::networks::{ADDRESS, OTHER_ADDRESS};
use super::options::{Setup, Way};
use crate::case::Outcome;

/// The compiled programs of `benches/peers`, which `benches/peers/install` puts here.
const BIN: &str = "target/peers";

/// The programs that use the newest peers, and these peers.
pub(super) const NEWEST: &str = "target/peers/newest";

/// Variables that are set for every program.
type Variables = Vec<(&'static str, OsString)>;

/// How programs are started.
pub(super) struct Programs {
    pub(super) variables: Variables,
    is_tcp: bool,
    is_newest: bool,
    provider: OsString,
    cores: [u32; 2],
    /// The file of the network namespace that programs start in.
    network: Option<OsString>,
}

impl Programs {
    /// `network` and `other_network` are the namespaces of both processes, if there are any.
    pub(super) fn new(setup: &Setup, networks: Option<[OsString; 2]>) -> Outcome<Self> {
        let or = |name: &'static str, default: &str| {
            (name, env::var_os(name).unwrap_or_else(|| default.into()))
        };
        // In containers one is root, and two processes that poll are not too many for two CPUs.
        let mut variables: Variables = vec![
            ("OMPI_ALLOW_RUN_AS_ROOT", "1".into()),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".into()),
            ("PRTE_ALLOW_RUN_AS_ROOT", "1".into()),
            ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1".into()),
            ("UCX_WARN_UNUSED_ENV_VARS", "n".into()),
        ];
        let mut provider: OsString = "tcp;ofi_rxm".into();
        let mut network = None;
        match &setup.way {
            Way::SharedMemory => {
                provider = "shm".into();
                variables.push(or("UCX_TLS", "self,posix,sysv,cma"));
            }
            Way::Ofi(wanted) => {
                provider = wanted.into();
                variables.push(("PEERS_OFI", wanted.into()));
                variables.push(or("UCX_TLS", "self,posix,sysv,cma"));
            }
            Way::Tcp => {
                let interface = if networks.is_some() { "veth0" } else { "lo" };
                variables.push(or("UCX_TLS", "self,tcp"));
                variables.push(or("UCX_NET_DEVICES", interface));
                variables.push(or("FI_TCP_IFACE", interface));
                variables.push(("TAGMATCH_SECRET", new_secret()?.into()));
                if let Some([first, second]) = networks {
                    variables.push(("PEERS_ADDRESS", ADDRESS.into()));
                    variables.push(("PEERS_OTHER_ADDRESS", OTHER_ADDRESS.into()));
                    variables.push(("PEERS_OTHER_NETWORK", second));
                    network = Some(first);
                } else {
                    variables.push(("PEERS_ADDRESS", "127.0.0.1".into()));
                }
            }
        }
        let is_tcp = setup.way == Way::Tcp;
        let is_newest = setup.is_newest;
        Ok(Programs { variables, is_tcp, is_newest, provider, cores: setup.cores, network })
    }

    /// The command of a program with so many processes. Two of them pin themselves; more share both
    /// CPUs.
    pub(super) fn command(&self, program: &str, count: u32) -> Outcome<Vec<OsString>> {
        let mut command: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| command.extend(words.iter().map(OsString::from));
        let [a, b] = self.cores;
        let n = count.to_string();
        if let Some(network) = &self.network {
            add(&["nsenter", &format!("--net={}", network.display())]);
        }
        if count != 2 {
            add(&["taskset", "-c", &format!("{a},{b}")]);
        }
        if program.starts_with("tagmatch-") && program != "tagmatch-mpiexec" {
            // Both processes copy a long message, as in the crate's own row.
            let folder = beside("")?;
            add(&["env", "TAGMATCH_FI_SENDER_WRITES=on", "FI_PROVIDER=tagmatch"]);
            add(&[&format!("FI_PROVIDER_PATH={}", folder.display())]);
        }
        if program.ends_with("mpiexec") || program == "mpich" {
            let is_own = program != "mpich" || !self.is_newest;
            let newest = format!("{NEWEST}/mpich/bin/mpirun");
            add(&[if is_own { "mpirun.mpich" } else { &newest }, "-n", &n, "-bind-to", "none"]);
        }
        if program.contains("openmpi") {
            let newest = format!("{NEWEST}/openmpi/bin/mpirun");
            add(&[if self.is_newest { &newest } else { "mpirun.openmpi" }]);
            add(&["--bind-to", "none", "--oversubscribe", "-n", &n]);
            if count == 2 {
                // Two processes poll on a CPU each; of more, Open MPI decides whether they yield.
                add(&["--mca", "mpi_yield_when_idle", "0"]);
            }
        }
        let transport: &[&str] = match program {
            "openmpi-ob1" if self.is_newest => &["--mca", "pml", "ob1", "--mca", "btl", "sm,self"],
            "openmpi-ob1" => &["--mca", "pml", "ob1", "--mca", "btl", "vader,self"],
            "openmpi-ucx" => {
                add(&["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any"]);
                &["--mca", "pml_ucx_devices", "any"]
            }
            "tagmatch-openmpi" => {
                add(&["--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
                &["--mca", "mtl_ofi_provider_include", "tagmatch"]
            }
            "ucx-fifo-1024" => &["env", "UCX_MM_FIFO_SIZE=1024"],
            "ucx-fifo-4096" => &["env", "UCX_MM_FIFO_SIZE=4096"],
            _ => &[],
        };
        add(transport);
        let binary = match program {
            "tagmatch" if count != 2 => {
                command.extend([
                    beside("tagperf")?,
                    "run".into(),
                    "-n".into(),
                    n.into(),
                    "--".into(),
                ]);
                return Ok([command, vec![env::current_exe()?.into()]].concat());
            }
            "tagmatch" | "tagmatch-mpiexec" => {
                command.push(env::current_exe()?.into());
                return Ok(command);
            }
            "libfabric" => {
                let mut provider = OsString::from("FI_PROVIDER=");
                provider.push(&self.provider);
                command.extend(["env".into(), provider]);
                if let Some(library) = env::var_os("TAGMATCH_LIBFABRIC") {
                    let mut preload = OsString::from("LD_PRELOAD=");
                    preload.push(library);
                    command.push(preload);
                }
                "ofi"
            }
            _ if program.starts_with("ucx-fifo-") => "ucx",
            "tagmatch-libfabric" => "ofi",
            "floor" if self.is_tcp => "socket",
            _ if program.contains("openmpi") => "openmpi",
            other => other,
        };
        let path = match binary {
            "openmpi" | "mpich" if self.is_newest => format!("{NEWEST}/{binary}-program"),
            "ucx" if self.is_newest => format!("{NEWEST}/ucx"),
            _ => format!("{BIN}/{binary}"),
        };
        command.push(path.into());
        Ok(command)
    }
}

/// Installs the packages that a program needs, and compiles it. The error is a text for the table.
pub(super) fn install(program: &str, is_newest: bool) -> Result<(), String> {
    let generation = is_newest.then_some("newest");
    let mut install = Command::new("benches/peers/install");
    let done = install.arg(program).args(generation).stderr(std::io::stderr()).output();
    let done = done.map_err(|error| format!("benches/peers/install: {error}"))?;
    let why = String::from_utf8_lossy(&done.stdout).trim().replace('\t', " ");
    if done.status.success() { Ok(()) } else { Err(why) }
}

/// A secret for the workers of this run, which use TCP.
fn new_secret() -> Outcome<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The path of a program that was built beside this one.
fn beside(name: &str) -> Outcome<OsString> {
    let folder = env::current_exe()?;
    Ok(folder.parent().unwrap_or(Path::new(".")).join(name).into())
}
