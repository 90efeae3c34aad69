//! Real programs over Open MPI: their wall time over our provider for libfabric, and over Open
//! MPI's own shared memory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::options::Setup;
use super::programs::{NEWEST, install};
use crate::case::Outcome;

/// Runs of each program over each transport, in turns.
const RUNS: usize = 9;
/// A run that takes longer is killed.
const RUN_S_MAX: &str = "300";

struct Program {
    name: &'static str,
    command: &'static [&'static str],
    /// Its Fortran library is not part of PyPI's Open MPI.
    needs_debian: bool,
}

const PROGRAMS: [Program; 4] = [
    // Most of it is libfabric's start, which looks for all of its providers' devices.
    Program { name: "start and end alone", command: &["../fft", "0"], needs_debian: false },
    Program {
        name: "LAMMPS, a molten salt",
        command: &["lmp", "-in", "salt.lammps"],
        needs_debian: false,
    },
    Program { name: "FFTW, a cube of 128", command: &["../fft", "40"], needs_debian: false },
    Program {
        name: "NWChem, four molecules of water",
        command: &["nwchem.openmpi", "water.nw"],
        needs_debian: true,
    },
];

/// Measures all programs. `Ok(false)`: one of them failed.
pub(super) fn measure(setup: &Setup) -> Outcome<bool> {
    install("programs", setup.is_newest)?;
    let folder = fs::canonicalize("target/peers")?.join("programs");
    fs::create_dir_all(&folder)?;
    for input in ["salt.lammps", "water.nw"] {
        fs::copy(PathBuf::from("benches/peers/inputs").join(input), folder.join(input))?;
    }
    let version = if setup.is_newest { "5.0.11 of PyPI" } else { "of Debian" };
    println!(
        "# Open MPI {version}, 2 ranks, wall time in s, medians of {RUNS} in turns [quartiles]"
    );
    println!("{:34}{:>22}{:>22}{:>8}", "", "own transport", "over tagmatch", "ratio");
    let mut is_complete = true;
    for program in &PROGRAMS {
        if program.needs_debian && setup.is_newest {
            println!(
                "{:34}NOT MEASURED: it needs Debian's Open MPI (--peers debian)",
                program.name
            );
            continue;
        }
        match runs(setup, program, &folder) {
            Ok([own, ours]) => {
                let show =
                    |[low, median, high]: [f64; 3]| format!("{median:.2} [{low:.2}..{high:.2}]");
                let ratio = ours[1] / own[1];
                println!("{:34}{:>22}{:>22}{ratio:>8.2}", program.name, show(own), show(ours));
            }
            Err(why) => {
                is_complete = false;
                println!("{:34}NOT MEASURED: {why}", program.name);
            }
        }
    }
    Ok(is_complete)
}

/// Quartiles and median of the times over Open MPI's own transport, and over ours, in s.
fn runs(setup: &Setup, program: &Program, folder: &PathBuf) -> Outcome<[[f64; 3]; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for run in 0..RUNS {
        for (is_ours, times) in [false, true].into_iter().zip(&mut times) {
            setup.show_progress(&format!("{}: {} of {RUNS}", program.name, run + 1));
            times.push(time(setup, program, folder, is_ours)?);
        }
    }
    setup.show_progress("");
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        [RUNS / 4, RUNS / 2, 3 * RUNS / 4].map(|place| times[place])
    }))
}

/// The wall time of one run, in s.
fn time(setup: &Setup, program: &Program, folder: &PathBuf, is_ours: bool) -> Outcome<f64> {
    let mut command = Command::new("timeout");
    command.args(["-k", "2", RUN_S_MAX]).current_dir(folder);
    if setup.is_newest {
        let newest = fs::canonicalize(NEWEST)?.join("openmpi");
        command.arg(newest.join("bin/mpirun")).env("LD_LIBRARY_PATH", newest.join("lib"));
    } else {
        command.arg("mpirun.openmpi");
    }
    let [a, b] = setup.cores;
    let cpus = format!("{a},{b}");
    command.args(["-n", "2", "--bind-to", "none"]).env("OMP_NUM_THREADS", "1");
    if is_ours {
        let beside = std::env::current_exe()?;
        let beside = beside.parent().map_or(OsStr::new("."), |folder| folder.as_os_str());
        command.args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
        command.args(["--mca", "mtl_ofi_provider_include", "tagmatch"]);
        command.env("FI_PROVIDER", "tagmatch").env("FI_PROVIDER_PATH", beside);
    } else {
        let memory = if setup.is_newest { "sm,self" } else { "vader,self" };
        command.args(["--mca", "pml", "ob1", "--mca", "btl", memory]);
    }
    for name in ["OMPI", "PRTE"] {
        command.env(format!("{name}_ALLOW_RUN_AS_ROOT"), "1");
        command.env(format!("{name}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
    }
    let output = folder.join("output");
    let printed = File::create(&output)?;
    command.args(["taskset", "-c", &cpus]).args(program.command);
    command.stdin(Stdio::null()).stderr(printed.try_clone()?).stdout(printed);
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed().as_secs_f64();
    if status.success() {
        return Ok(took);
    }
    let over = if is_ours { "tagmatch" } else { "its own transport" };
    Err(format!("{status} over {over}; its output is in {}", output.display()).into())
}
