//! For tests: where libfabric finds the provider.

use std::io;
use std::path::Path;

/// The file that cargo builds.
const BUILT: &str = "libtagmatch_cxi_fi.so";
/// Its name as those of other providers in files of their own.
const INSTALLED: &str = "libtagmatch_cxi-fi.so";

/// Puts the provider into a folder, for `FI_PROVIDER_PATH` to name. A crate that has this one as a
/// dependency of its tests finds it built beside them.
///
/// # Errors
/// The provider isn't there, or the folder can't be written to.
pub fn install(folder: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let beside = program.ancestors().skip(1).take(2);
    let mut built = beside.flat_map(|at| [at.join(BUILT), at.join("deps").join(BUILT)]);
    let built = built.find(|file| file.exists());
    let built = built.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, BUILT))?;
    std::os::unix::fs::symlink(built, folder.join(INSTALLED))
}
