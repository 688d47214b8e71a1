//! The env setupper's two passes.

use super::environment::{self, Change};
use super::notes::{Notes, SetupComplaint};
use super::{access, command, dump};
use crate::error::Category;
use crate::handshake::arguments::Arguments;
use crate::journey::StepState;
use crate::plan::Limit;
use crate::step::Step;
use forkyard_sys as sys;
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::origin::is_here;
use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Runs with the kit's permissions.
    Before,
    /// Runs with the application's permissions.
    After,
}

const OWN: &str = "/proc/self/exe";

struct Failed {
    step: Step,
    category: Category,
    summary: String,
    solution: Option<String>,
    details: Option<String>,
}

impl Failed {
    fn new(step: Step, summary: String) -> Failed {
        Failed {
            step,
            category: Category::Internal,
            summary,
            solution: None,
            details: None,
        }
    }

    fn from_call(step: Step, what: &str, error: &sys::Error) -> Failed {
        Failed {
            category: Category::of_errno(error.errno as i32),
            details: Some(error.to_string()),
            ..Failed::new(step, format!("{what}: {error}."))
        }
    }
}

/// Turns this process into the application. Returns only on failure.
pub fn run(work_directory: &Path, pass: Pass) -> ExitCode {
    let notes = match Notes::open(work_directory) {
        Ok(notes) => notes,
        Err(error) => {
            eprintln!("forkyard: the work directory is gone: {error}");
            return ExitCode::FAILURE;
        }
    };
    let failed = match pass {
        Pass::Before => before(work_directory, &notes),
        Pass::After => after(work_directory, &notes),
    };
    let Err(failed) = failed;
    eprintln!("forkyard: {}", failed.summary);
    let complaint = SetupComplaint {
        summary: &failed.summary,
        problem: None,
        solution: failed.solution.as_deref(),
        details: failed.details.as_deref(),
    };
    notes.complain(failed.step, failed.category, &complaint);
    ExitCode::FAILURE
}

fn before(work_directory: &Path, notes: &Notes) -> Result<Infallible, Failed> {
    const STEP: Step = Step::SubprocessSetupperBeforeShell;
    let call = |what: &'static str| move |error: sys::Error| Failed::from_call(STEP, what, &error);
    let note = call("The work directory can't be written to");
    // A new process group can be killed as a whole.
    let _ = nix::unistd::setsid();
    apply(environment::marks(work_directory));
    notes
        .step(Step::SubprocessBeforeFirstExec, StepState::Performed)
        .map_err(note)?;
    notes.step(STEP, StepState::InProgress).map_err(note)?;
    let arguments = arguments(notes, STEP)?;
    dump::all(notes).map_err(note)?;
    set_limits(&arguments.limits, STEP)?;
    if arguments.switch_user {
        let account = &arguments.account;
        notes.give_away(account.uid, account.gid).map_err(call(
            "The work directory can't be given to the application's user",
        ))?;
        let identity = Identity {
            uid: account.uid,
            gid: account.gid,
            groups: account.groups.clone(),
            name: Some(account.user.clone()),
            home: account.home.clone(),
            shell: account.shell.clone(),
        };
        sys::keyring::begin().map_err(call("The process can't get its own session keyring"))?;
        identity::become_user(&identity).map_err(call("The user can't be changed"))?;
        identity::allow_dumps().map_err(call("The process can't be made dumpable"))?;
        apply(environment::of_user(&arguments));
    }
    if arguments.no_new_privs {
        identity::give_up_new_privileges().map_err(call("The process can't set no_new_privs"))?;
    }
    dump::all(notes).map_err(note)?;
    set_umask(&arguments);
    enter(&arguments, STEP)?;
    apply(environment::defaults(&arguments));
    notes.step(STEP, StepState::Performed).map_err(note)?;
    let own = std::env::current_exe().map_err(|error| {
        Failed::new(
            STEP,
            format!("The path of forkyard's own program is unknown: {error}."),
        )
    })?;
    let mut next = match environment::usable_shell(&arguments) {
        Some(shell) => {
            notes.mark_shell().map_err(note)?;
            notes
                .step(Step::SubprocessOsShell, StepState::InProgress)
                .map_err(note)?;
            let mut command = Command::new(shell);
            command.args(["-l", "-c", "exec \"$@\"", "forkyard-env-setupper"]);
            command.arg(&own);
            command
        }
        // Needs no access to forkyard's directories.
        None if Path::new(OWN).exists() => Command::new(OWN),
        None => Command::new(&own),
    };
    next.arg("spawn-env-setupper").arg(work_directory).arg("--after");
    let error = next.exec();
    Err(Failed::new(
        STEP,
        format!(
            "{} can't be executed: {error}.",
            next.get_program().to_string_lossy()
        ),
    ))
}

fn after(work_directory: &Path, notes: &Notes) -> Result<Infallible, Failed> {
    const STEP: Step = Step::SubprocessSetupperAfterShell;
    let note = |error: sys::Error| Failed::from_call(STEP, "The work directory can't be written to", &error);
    if notes.has_shell_mark() {
        notes
            .step(Step::SubprocessOsShell, StepState::Performed)
            .map_err(note)?;
    }
    notes.step(STEP, StepState::InProgress).map_err(note)?;
    let arguments = arguments(notes, STEP)?;
    // Undoes changes by the shell's start-up files.
    set_limits(&arguments.limits, STEP)?;
    set_umask(&arguments);
    enter(&arguments, STEP)?;
    apply(environment::marks(work_directory));
    apply(environment::defaults(&arguments));
    apply(environment::of_operator(&arguments));
    let said = std::env::var("NODE_OPTIONS").ok();
    apply(
        environment::of_node(&arguments, said.as_deref())
            .into_iter()
            .collect(),
    );
    dump::all(notes).map_err(note)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let check = command::check(&arguments.start_command, &arguments.app_root, &path);
    let check = serde_json::to_vec(&check).unwrap_or_default();
    notes.dump("command.json", &check).map_err(note)?;
    notes.step(STEP, StepState::Performed).map_err(note)?;
    let next = if arguments.starts_using_wrapper {
        Step::SubprocessExecWrapper
    } else {
        Step::SubprocessAppLoadOrExec
    };
    notes.step(next, StepState::InProgress).map_err(note)?;
    if arguments.dies_with_parent {
        // A change of user clears this setting.
        identity::die_with_parent().map_err(|error| {
            let what = "The kernel can't be asked to end it together with forkyard";
            Failed::from_call(next, what, &error)
        })?;
    }
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(format!("exec {}", arguments.start_command));
    let error = shell.exec();
    Err(Failed {
        category: Category::OperatingSystem,
        details: error.raw_os_error().map(|number| format!("errno {number}")),
        ..Failed::new(
            next,
            format!(
                "/bin/sh can't be executed to run {}: {error}.",
                arguments.start_command
            ),
        )
    })
}

fn arguments(notes: &Notes, step: Step) -> Result<Arguments, Failed> {
    let bytes = notes
        .arguments()
        .map_err(|error| Failed::from_call(step, "args.json can't be read", &error))?
        .ok_or_else(|| Failed::new(step, "There is no args.json in the work directory.".to_owned()))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Failed::new(step, format!("args.json is not what forkyard wrote: {error}.")))
}

fn enter(arguments: &Arguments, step: Step) -> Result<(), Failed> {
    if let Some(barrier) = access::barrier(&arguments.app_root, &arguments.account.user) {
        return Err(Failed {
            category: Category::FileSystem,
            solution: Some(barrier.solution),
            ..Failed::new(step, barrier.summary)
        });
    }
    identity::change_directory(&arguments.app_root).map_err(|error| {
        let what = "The directory of the application can't be entered";
        Failed {
            category: Category::FileSystem,
            ..Failed::from_call(step, what, &error)
        }
    })?;
    if arguments.origin.as_ref().is_some_and(|origin| !is_here(origin)) {
        let summary = format!(
            "{} has been replaced, or has another owner, since forkyard inspected it.",
            arguments.app_root.display()
        );
        return Err(Failed {
            category: Category::FileSystem,
            solution: Some("No action is needed: the next request inspects it again.".to_owned()),
            ..Failed::new(step, summary)
        });
    }
    Ok(())
}

fn set_limits(limits: &[Limit], step: Step) -> Result<(), Failed> {
    for limit in limits {
        identity::limit(&limit.name, limit.soft, limit.hard).map_err(|error| {
            let what = format!("The limit {} can't be set", limit.name);
            Failed {
                category: Category::OperatingSystem,
                ..Failed::from_call(step, &what, &error)
            }
        })?;
    }
    Ok(())
}

fn set_umask(arguments: &Arguments) {
    if let Some(mask) = arguments.umask {
        identity::set_umask(mask);
    }
}

fn apply(changes: Vec<Change>) {
    let (mut unset, mut set) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            Change::Set(name, value) => set.push((name.into(), value.into())),
            Change::Unset(name) => unset.push(name),
        }
    }
    sys::process::change_environment(&unset, &set);
}
