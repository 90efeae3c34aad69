//! `tagperf run`: starts processes of a command as the ranks of a job.

use tagmatch_launch::launcher::{self, Launch, Member};

use crate::args;
use crate::failure::{Failure, one_line};

/// The command. Its exit status is that of the first process that failed.
pub(crate) fn command(args: &args::Run) -> Result<(), Failure> {
    let launch = Launch {
        command: args.command.clone(),
        size: args.n,
        label: args.label,
        keep_going: args.keep_going,
    };
    let told = |member: Member, failure: &launcher::Failure| {
        let line = one_line(format!("tagperf run: rank {member} {failure}")) + "\n";
        // If nobody reads it, the exit status still tells the failure.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    };
    match launcher::run(&launch, told) {
        Ok(None) => Ok(()),
        Ok(Some((_, failure))) => Err(Failure::Launched(failure.status())),
        Err(error) => Err(Failure::Usage(format!("run: {error}"))),
    }
}
