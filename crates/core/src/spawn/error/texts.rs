//! Texts about failures: category, step, summary, problem and solution.

use super::Ended;
use super::category::Category;
use super::headline::{headline, missing_variable};
use super::trouble::Trouble;
use crate::spawn::handshake::response::{Response, Text};
use crate::spawn::journey::{Journey, StepState};
use crate::spawn::plan::{Kind, OwnSocket, Plan};
use crate::spawn::report::source::Excerpt;
use crate::spawn::step::{Party, Route, Step};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub category: Category,
    #[serde(serialize_with = "step_name")]
    pub step: Step,
    pub summary: String,
    pub problem: Text,
    pub solution: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
    /// The failed line of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Excerpt>,
}

impl Failure {
    pub(in crate::spawn) fn new(
        category: Category,
        step: Step,
        summary: String,
        problem: impl Into<String>,
        solution: impl Into<String>,
    ) -> Failure {
        Failure {
            category,
            step,
            summary,
            problem: Text::Plain(problem.into()),
            solution: Text::Plain(solution.into()),
            details: None,
            source: None,
        }
    }
}

fn step_name<S: serde::Serializer>(step: &Step, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(step.name())
}

/// Explains a failure. `journey` includes the process's steps; its own description takes precedence for its own errors.
pub fn explain(trouble: &Trouble, journey: &Journey, plan: &Plan, response: Option<&Response>) -> Failure {
    let mut failure = ours(trouble, journey, plan, response);
    let speaks = matches!(
        trouble,
        Trouble::Exited(_) | Trouble::Aborted { .. } | Trouble::Timeout(_)
    );
    if let (true, Some(response)) = (speaks, response) {
        let complaint = &response.complaint;
        let timeout = matches!(trouble, Trouble::Timeout(_));
        if let (false, Ok(Some(category))) = (timeout, complaint.category()) {
            failure.category = category;
        }
        failure.summary = complaint.summary().unwrap_or(failure.summary);
        failure.problem = complaint.problem().unwrap_or(failure.problem);
        failure.solution = complaint.solution().unwrap_or(failure.solution);
        failure.details = failure.details.or(complaint.details());
        failure.source = complaint.source.as_deref().and_then(Excerpt::parse);
    }
    failure
}

fn ours(trouble: &Trouble, journey: &Journey, plan: &Plan, response: Option<&Response>) -> Failure {
    let route = journey.route();
    let what = subject(route);
    let blamed = Step::of_application(plan.kind.has_wrapper());
    let guessed = || reported(journey).unwrap_or_else(|| journey.likely_failed());
    match trouble {
        Trouble::BadPlan(faults) => Failure::new(
            Category::Internal,
            Step::KitPreparation,
            format!(
                "{what} can't be started with this configuration: {}.",
                faults.join("; ")
            ),
            faults.join("\n"),
            "Correct the settings that are named.",
        ),
        Trouble::Preparation(fault) => Failure::new(
            Category::of_errno(fault.errno),
            Step::KitPreparation,
            format!("forkyard could not make ready what {what} needs: {fault}."),
            "The work directory, a free port or the arguments could not be made. No process was started.",
            resources(Category::of_errno(fault.errno)),
        ),
        Trouble::Fork(fault) => Failure::new(
            Category::OperatingSystem,
            Step::KitForkSubprocess,
            format!("forkyard could not make a process: {fault}."),
            "The operating system refused another process, or the env setupper could not be executed.",
            resources(Category::OperatingSystem),
        ),
        Trouble::Timeout(step) => timeout(*step, journey, plan, response),
        Trouble::Exited(ended) => exited(*ended, guessed(), plan, route, response),
        Trouble::Aborted { byte } => {
            let why = match byte {
                Some(byte) => {
                    format!("It wrote the byte {byte:#04x} to response/finish, where \"1\" means success.")
                }
                None => "It opened response/finish and closed it without writing a byte.".to_owned(),
            };
            Failure::new(
                Category::Internal,
                guessed(),
                format!("{what} reported that it failed to start."),
                why,
                application(plan),
            )
        }
        Trouble::Finish(fault) => Failure::new(
            Category::of_errno(fault.errno),
            Step::KitHandshakePerform,
            format!("forkyard could not read whether {what} is up: {fault}."),
            "Reading response/finish in the work directory failed.",
            resources(Category::of_errno(fault.errno)),
        ),
        Trouble::BadCategory(text) => Failure::new(
            Category::Internal,
            guessed(),
            format!("{what} failed to start, and sent a report that forkyard can't read."),
            format!(
                "{} wrote {text:?} to response/error/category, which is no category.",
                capital(plan.kind.writer())
            ),
            format!("This is an error in {}: correct it there.", plan.kind.writer()),
        ),
        Trouble::BadStep(step, text) => Failure::new(
            Category::Internal,
            *step,
            format!("{what} reported one of its steps in words that forkyard does not know."),
            format!(
                "{} wrote {text:?} to response/steps/{}/state, which is no state.",
                capital(plan.kind.writer()),
                step.directory()
            ),
            format!("This is an error in {}: correct it there.", plan.kind.writer()),
        ),
        Trouble::Properties(faults) => Failure::new(
            Category::Internal,
            blamed,
            format!("{what} reported that it is ready, but its report about its sockets is wrong."),
            faults
                .iter()
                .map(|fault| format!("response/properties.json {fault}."))
                .collect::<Vec<_>>()
                .join("\n"),
            format!("This is an error in {}: correct it there.", plan.kind.writer()),
        ),
        Trouble::NoProperties => Failure::new(
            Category::Internal,
            blamed,
            format!("{what} reported that it is ready but did not list its sockets."),
            "There is no file response/properties.json.",
            format!(
                "{} has to write the file before it writes to response/finish.",
                capital(plan.kind.writer())
            ),
        ),
        Trouble::Cancelled => Failure::new(
            Category::Internal,
            guessed(),
            format!("The start of {what} was called off."),
            "The process was no longer needed.",
            "There is nothing to be done.",
        ),
    }
}

fn exited(ended: Ended, step: Step, plan: &Plan, route: Route, response: Option<&Response>) -> Failure {
    let what = subject(route);
    let out_of_memory = response.is_some_and(|response| response.out_of_memory);
    let mut problem = format!("The process {} before it was up.", ended.describe());
    let mut solution = None;
    if let Some((meaning, remedy)) = ended.hint(out_of_memory) {
        problem = format!("{problem}\n{meaning}");
        solution = Some(remedy.to_owned());
    }
    let check = response.and_then(|response| response.command.as_ref());
    // The check of the command matters only if the shell failed on it.
    if let (Ended::Code(126 | 127), Some(check)) = (ended, check) {
        if let Some(fault) = &check.fault {
            problem = format!("{problem}\n{fault}");
        }
        solution = check.remedy.clone().or(solution);
    }
    let output = response.map_or("", |response| response.output.as_str());
    let word = headline(output).filter(|_| matches!(ended, Ended::Code(_)));
    let solution = solution.or_else(|| missing_variable(word?, output));
    let cause = word.map(|word| format!(": {word}"));
    let mut failure = Failure::new(
        if matches!(ended, Ended::Code(126 | 127)) {
            Category::OperatingSystem
        } else {
            Category::Internal
        },
        step,
        format!(
            "{what} {} during startup{}",
            ended.describe(),
            cause.as_deref().unwrap_or(".")
        ),
        problem,
        solution.unwrap_or_else(|| application(plan)),
    );
    let fault = check.and_then(|check| check.fault.as_deref());
    if let (Ended::Code(126 | 127), Some(fault)) = (ended, fault) {
        failure.summary = format!("{what} could not be executed: {fault}");
    }
    failure
}

fn timeout(step: Step, journey: &Journey, plan: &Plan, response: Option<&Response>) -> Failure {
    let stuck = match journey.route() {
        // Before the handshake the process can't be at fault.
        _ if step != Step::KitHandshakePerform => step,
        _ => journey.likely_failed(),
    };
    let elsewhere = response.filter(|response| {
        let is_there = |port| response.listens_on.contains(&port);
        plan.own_socket.is_none()
            && plan.wants_port(journey.route())
            && response.port.is_some_and(|port| !is_there(port))
    });
    if let Some((port, others)) = elsewhere.and_then(|it| Some((it.port?, &it.listens_on))) {
        if !others.is_empty() {
            let others = others
                .iter()
                .map(u16::to_string)
                .collect::<Vec<_>>()
                .join(" and ");
            return Failure::new(
                Category::Timeout,
                step,
                format!(
                    "The application listens on port {others}, and not on the one that it was given ({port})."
                ),
                "forkyard gives each process its own port, in the environment variable PORT.",
                "Let the application listen on $PORT: in Node.js, server.listen(process.env.PORT).",
            );
        }
    }
    let advice = match stuck {
        Step::SubprocessOsShell => {
            "The user's login shell did not come to an end of its start-up files: look what in them waits."
        }
        _ if plan.own_socket == Some(OwnSocket::Told) => {
            "The application did not listen on its socket: let it listen on the unix socket $SOCKET, and look \
             at its output to see where it waits."
        }
        _ if plan.own_socket.is_some() => {
            "The application has no HTTP server that listens: let a process of Node.js call listen() of an \
             http server, and look at the output to see where it waits. A program that is not Node.js needs \
             runtime = \"http\"."
        }
        _ if plan.wants_port(journey.route()) => {
            "The application did not listen on its port: let it listen on $PORT, on the configured address, \
             and look at its output to see where it waits."
        }
        _ if plan.kind == Kind::FastCgi => {
            "The application did not accept a connection on its standard input, which is a listening socket, \
             or did not read the request: check that it speaks FastCGI, and look at its output to see where \
             it waits."
        }
        Step::SubprocessAppLoadOrExec if plan.kind.has_wrapper() => {
            "The application was still loading: the end of the output shows the call. Give that call a time \
             limit, or make it when the first request comes."
        }
        _ => {
            "The application is stuck, or never reported that it is ready: look at its output and at the \
             durations of the steps, and let it call listen() and write \"1\" to response/finish."
        }
    };
    Failure::new(
        Category::Timeout,
        step,
        format!(
            "{} took longer than {} s to start.",
            subject(journey.route()),
            plan.start_timeout.as_secs_f64()
        ),
        format!(
            "The time for the whole start (start_timeout) ran out in step {}. The durations show which step took it.",
            stuck.name()
        ),
        format!(
            "{advice}\nIf it only is slow, for want of CPU time, memory or a fast disk, raise start_timeout."
        ),
    )
}

fn reported(journey: &Journey) -> Option<Step> {
    let failed = journey
        .records()
        .iter()
        .filter(|record| record.state == StepState::Errored);
    let mut steps = failed.map(|record| record.step);
    steps.find(|step| step.party() != Party::Kit)
}

fn subject(route: Route) -> &'static str {
    match route {
        Route::SpawnDirectly => "The application",
        Route::StartPreloader => "The preloader",
    }
}

fn application(plan: &Plan) -> String {
    let log = plan
        .log_file
        .as_deref()
        .map(|path| format!(", and the log {}", path.display()));
    format!(
        "Read the application's output{} for what went wrong. Try the command by hand, as user {} in {}.",
        log.unwrap_or_default(),
        plan.account.user,
        plan.app_root.display()
    )
}

fn resources(category: Category) -> String {
    match category {
        Category::FileSystem => {
            "Check that the paths exist, that their owners and modes are right, and that the file system has room."
        }
        Category::Internal | Category::OperatingSystem | Category::Io | Category::Timeout => {
            "Check that the machine has CPU time, memory, swap and processes to spare, and the service's limits."
        }
    }
    .to_owned()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::handshake::response::{CommandCheck, Complaint};
    use crate::spawn::plan::sample;

    fn explained(trouble: Trouble, response: &Response) -> Failure {
        let journey = Journey::new(Route::SpawnDirectly, false);
        explain(&trouble, &journey, &sample(), Some(response))
    }

    #[test]
    fn what_the_application_says_goes_first() {
        let mut response = Response {
            complaint: Complaint {
                category: Some(b"IO_ERROR".to_vec()),
                summary: Some(b"no database".to_vec()),
                ..Complaint::default()
            },
            ..Response::default()
        };
        let failure = explained(Trouble::Aborted { byte: Some(b'0') }, &response);
        assert_eq!(failure.category, Category::Io);
        assert_eq!(failure.summary, "no database");
        // A timeout is reported as a timeout.
        let failure = explained(Trouble::Timeout(Step::KitHandshakePerform), &response);
        assert_eq!(failure.category, Category::Timeout);
        assert_eq!(failure.summary, "no database");
        response.complaint.category = Some(b"ODD".to_vec());
        let failure = explained(Trouble::BadCategory("ODD".to_owned()), &response);
        assert!(failure.summary.contains("can't read"));
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let response = Response {
            command: Some(CommandCheck {
                word: "puma".to_owned(),
                path: None,
                fault: Some("there is no puma in PATH.".to_owned()),
                remedy: Some("Install it.".to_owned()),
            }),
            ..Response::default()
        };
        let failure = explained(Trouble::Exited(Ended::Code(127)), &response);
        assert_eq!(failure.category, Category::OperatingSystem);
        assert_eq!(
            failure.summary,
            "The application could not be executed: there is no puma in PATH."
        );
        assert_eq!(failure.solution, Text::Plain("Install it.".to_owned()));
        let failure = explained(Trouble::Exited(Ended::Code(1)), &response);
        assert_eq!(
            failure.summary,
            "The application exited with code 1 during startup."
        );
    }
}
