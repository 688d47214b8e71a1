//! The steps of a spawn, named as in Passenger's SpawningKit.

use serde::{Deserialize, Serialize};

/// How a process is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Route {
    /// The application itself is started.
    SpawnDirectly,
    /// A preloader of the daemon is started.
    StartPreloader,
}

impl Route {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Route::SpawnDirectly => "SPAWN_DIRECTLY",
            Route::StartPreloader => "START_PRELOADER",
        }
    }
}

/// The performer of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The process that runs the spawning kit.
    Kit,
    /// The new process.
    Subprocess,
}

macro_rules! steps {
    ($($(#[$doc:meta])* $variant:ident $party:ident $upper:literal $lower:literal,)*) => {
        /// A step of a journey, in order of time.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Step { $($(#[$doc])* $variant,)* }

        impl Step {
            /// All steps in order.
            pub const ALL: &'static [Step] = &[$(Step::$variant,)*];

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Step::$variant => $upper,)* }
            }

            /// The directory name below `response/steps`.
            pub const fn directory(self) -> &'static str {
                match self { $(Step::$variant => $lower,)* }
            }

            /// The performer.
            pub const fn party(self) -> Party {
                match self { $(Step::$variant => Party::$party,)* }
            }
        }
    };
}

steps! {
    /// User, port, work directory and arguments are prepared.
    KitPreparation Kit "SPAWNING_KIT_PREPARATION" "spawning_kit_preparation",
    /// The process is forked.
    KitForkSubprocess Kit "SPAWNING_KIT_FORK_SUBPROCESS" "spawning_kit_fork_subprocess",
    /// The kit waits for the process.
    KitHandshakePerform Kit "SPAWNING_KIT_HANDSHAKE_PERFORM" "spawning_kit_handshake_perform",
    /// The result is assembled.
    KitFinish Kit "SPAWNING_KIT_FINISH" "spawning_kit_finish",
    /// From the fork to the first exec.
    SubprocessBeforeFirstExec Subprocess "SUBPROCESS_BEFORE_FIRST_EXEC" "subprocess_before_first_exec",
    /// The env setupper sets user, limits, directory and environment.
    SubprocessSetupperBeforeShell Subprocess "SUBPROCESS_SPAWN_ENV_SETUPPER_BEFORE_SHELL" "subprocess_spawn_env_setupper_before_shell",
    /// The user's shell reads its start-up files.
    SubprocessOsShell Subprocess "SUBPROCESS_OS_SHELL" "subprocess_os_shell",
    /// The env setupper's second pass.
    SubprocessSetupperAfterShell Subprocess "SUBPROCESS_SPAWN_ENV_SETUPPER_AFTER_SHELL" "subprocess_spawn_env_setupper_after_shell",
    /// The language's wrapper is executed.
    SubprocessExecWrapper Subprocess "SUBPROCESS_EXEC_WRAPPER" "subprocess_exec_wrapper",
    /// The wrapper initializes.
    SubprocessWrapperPreparation Subprocess "SUBPROCESS_WRAPPER_PREPARATION" "subprocess_wrapper_preparation",
    /// The application is executed or loaded.
    SubprocessAppLoadOrExec Subprocess "SUBPROCESS_APP_LOAD_OR_EXEC" "subprocess_app_load_or_exec",
    /// The application creates its sockets.
    SubprocessListen Subprocess "SUBPROCESS_LISTEN" "subprocess_listen",
    /// The application reports that it is up.
    SubprocessFinish Subprocess "SUBPROCESS_FINISH" "subprocess_finish",
}

impl Step {
    /// The description for people.
    pub const fn title(self) -> &'static str {
        match self {
            Step::KitPreparation => "Make everything ready",
            Step::KitForkSubprocess => "Make a process",
            Step::KitHandshakePerform => "Wait until it is up",
            Step::KitFinish => "Take it into service",
            Step::SubprocessBeforeFirstExec => "Begin the process",
            Step::SubprocessSetupperBeforeShell => "Set user, limits and directory",
            Step::SubprocessOsShell => "Read the login shell's files",
            Step::SubprocessSetupperAfterShell => "Set the environment",
            Step::SubprocessExecWrapper => "Execute the loader",
            Step::SubprocessWrapperPreparation => "Make the loader ready",
            Step::SubprocessAppLoadOrExec => "Load the application",
            Step::SubprocessListen => "Listen for requests",
            Step::SubprocessFinish => "Report that it is up",
        }
    }

    /// Whether a journey has this step; two exist only with a wrapper.
    pub fn is_in(self, wrapper: bool) -> bool {
        wrapper
            || !matches!(
                self,
                Step::SubprocessExecWrapper | Step::SubprocessWrapperPreparation
            )
    }

    /// The step in which the application is responsible for its output.
    pub fn of_application(wrapper: bool) -> Step {
        if wrapper {
            Step::SubprocessWrapperPreparation
        } else {
            Step::SubprocessAppLoadOrExec
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wrapper: bool, party: Party) -> Vec<&'static str> {
        let steps = Step::ALL.iter().filter(|step| step.party() == party);
        let steps = steps.filter(|step| step.is_in(wrapper));
        steps.map(|step| step.name()).collect()
    }

    #[test]
    fn a_journey_has_steps_of_two_parties() {
        let kit = [
            "SPAWNING_KIT_PREPARATION",
            "SPAWNING_KIT_FORK_SUBPROCESS",
            "SPAWNING_KIT_HANDSHAKE_PERFORM",
            "SPAWNING_KIT_FINISH",
        ];
        assert_eq!(names(true, Party::Kit), kit);
        let subprocess = [
            "SUBPROCESS_BEFORE_FIRST_EXEC",
            "SUBPROCESS_SPAWN_ENV_SETUPPER_BEFORE_SHELL",
            "SUBPROCESS_OS_SHELL",
            "SUBPROCESS_SPAWN_ENV_SETUPPER_AFTER_SHELL",
            "SUBPROCESS_EXEC_WRAPPER",
            "SUBPROCESS_WRAPPER_PREPARATION",
            "SUBPROCESS_APP_LOAD_OR_EXEC",
            "SUBPROCESS_LISTEN",
            "SUBPROCESS_FINISH",
        ];
        assert_eq!(names(true, Party::Subprocess), subprocess);
        assert_eq!(names(false, Party::Subprocess).len(), 7);
    }

    #[test]
    fn directories_are_the_names_in_lower_case() {
        for step in Step::ALL {
            assert_eq!(step.name().to_lowercase(), step.directory());
        }
    }
}
