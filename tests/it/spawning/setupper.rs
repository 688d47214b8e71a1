//! The env setupper.

use super::{Kit, UP, other_user, text};
use crate::support::prelude::*;
use forkyard_spawn::error::Category;
use forkyard_spawn::journey::StepState;
use forkyard_spawn::plan::Limit;
use forkyard_spawn::step::Step;

fn telling(kit: &Kit) -> String {
    let file = kit.root().join("told");
    fs::write(&file, "").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("a mode");
    format!(
        "{{ pwd; env; id; ulimit -n; umask; grep NoNewPrivs /proc/self/status; }} > {}\n{UP}",
        file.display()
    )
}

fn told(kit: &Kit) -> String {
    text(kit.root().join("told"))
}

#[test]
fn the_application_gets_its_directory_environment_limits_and_umask() {
    let mut kit = Kit::new();
    let mut plan = kit.native(&telling(&kit));
    plan.environment
        .insert("COLOUR".to_owned(), "green\nblue".to_owned());
    plan.environment
        .insert("RACK_ENV".to_owned(), "special".to_owned());
    plan.base_uri = "/shop".to_owned();
    plan.umask = Some(0o027);
    plan.no_new_privileges = true;
    plan.limits.push(Limit {
        name: "nofile".to_owned(),
        soft: Some(123),
        hard: Some(456),
    });
    let up = kit.up(plan);
    let told = told(&kit);
    let root = kit.root();
    let mut lines = told.lines();
    assert_eq!(lines.next(), Some(root.to_string_lossy().as_ref()));
    for line in [
        "COLOUR=green",
        "RACK_ENV=special",
        "NODE_ENV=production",
        "PYTHONUNBUFFERED=1",
        "RAILS_RELATIVE_URL_ROOT=/shop",
        "123",
        "0027",
        "NoNewPrivs:\t1",
    ] {
        assert!(told.lines().any(|told| told == line), "{line} in {told}");
    }
    let limits = up.surroundings.ulimits.as_deref().expect("a dump");
    assert!(limits.contains("123") && limits.contains("456") && limits.contains("0027"));
    let variables = up.surroundings.envvars.as_deref().expect("a dump");
    assert!(variables.contains("COLOUR=green\\nblue"));
    assert_starts(up.surroundings.user_info.as_deref().unwrap_or_default(), "uid=");
}

#[test]
fn the_user_is_changed() {
    let Some(account) = other_user() else { return };
    let mut kit = Kit::new();
    let mut plan = kit.native(&telling(&kit));
    let uid = account.uid;
    plan.account = account;
    plan.switch_user = true;
    plan.debug_work_dir = true;
    let up = kit.up(plan);
    let told = told(&kit);
    assert_contains(&told, "uid=33(www-data) gid=33(www-data) groups=33(www-data)");
    assert!(told.contains("\nUSER=www-data\n") && told.contains("\nHOME=/var/www\n"));
    assert_contains(
        up.surroundings.user_info.as_deref().unwrap_or_default(),
        "www-data",
    );
    let entry = fs::read_dir(kit.scratch.path().join("work"))
        .expect("it is kept")
        .next();
    let work = entry.expect("it is kept").expect("an entry").path();
    for path in [
        "",
        "args.json",
        "args/app_root",
        "response/finish",
        "response/steps/subprocess_finish",
    ] {
        use std::os::unix::fs::MetadataExt;
        let found = fs::symlink_metadata(work.join(path)).expect("it is there");
        assert_eq!(found.uid(), uid, "{path}");
        assert_eq!(found.mode() & 0o077, 0, "{path}");
    }
    fs::remove_dir_all(work).expect("it can be removed");
}

#[test]
fn a_user_without_an_entry_is_a_number() {
    skip_if!(needs_root());
    let mut kit = Kit::new();
    let mut plan = kit.native(&telling(&kit));
    plan.account = forkyard_spawn::effects::account("4711", None).expect("a number");
    plan.switch_user = true;
    kit.up(plan);
    assert!(told(&kit).contains("uid=4711 gid=4711"));
}

#[test]
fn the_first_directory_that_bars_the_way_is_named() {
    let Some(account) = other_user() else { return };
    for level in 1..=3 {
        let mut kit = Kit::new();
        let names = ["one", "two", "three", "app"];
        let mut path = kit.scratch.path().to_owned();
        let mut barred = path.clone();
        for (place, name) in names.iter().enumerate() {
            path = path.join(name);
            fs::create_dir(&path).expect("a directory");
            if place + 1 == level {
                barred = path.clone();
            }
        }
        fs::set_permissions(&barred, fs::Permissions::from_mode(0o700)).expect("a mode");
        let mut plan = kit.native(UP);
        plan.app_root = path;
        plan.account = account.clone();
        plan.switch_user = true;
        let report = kit.failure(plan);
        let right = format!(
            "The directory {} can't be entered by user www-data.",
            barred.display()
        );
        assert_eq!(report.failure.summary, right);
        assert_eq!(report.failure.category, Category::FileSystem);
        assert_eq!(report.failure.step, Step::SubprocessSetupperBeforeShell);
    }
}

fn with_shell(kit: &Kit, shell: &str, profile: (&str, &str)) -> forkyard_spawn::plan::Plan {
    let home = kit.scratch.path().join("home");
    fs::create_dir_all(&home).expect("a directory");
    fs::write(home.join(profile.0), profile.1).expect("a profile");
    let mut plan = kit.native(&telling(kit));
    plan.account.shell = Some(shell.into());
    plan.environment.insert("OPERATOR".to_owned(), "1".to_owned());
    plan.load_shell_envvars = true;
    plan
}

fn at_home(kit: &mut Kit) {
    let home = kit.scratch.path().join("home");
    let mut context = forkyard_spawn::driver::context(env!("CARGO_BIN_EXE_forkyard").into());
    context.spawn_dir = kit.scratch.path().join("work");
    context
        .environment
        .retain(|(name, _)| name != "HOME" && name != "ZDOTDIR" && name != "ENV");
    context.environment.push(("HOME".into(), home.into()));
    kit.driver = forkyard_spawn::driver::Driver::new(context, Box::new(|_, _| {})).expect("a kit");
}

#[test]
fn a_login_shell_sets_variables_and_its_noise_does_no_harm() {
    for (shell, file) in [
        ("/bin/bash", ".bash_profile"),
        ("/bin/zsh", ".zprofile"),
        ("/bin/sh", ".profile"),
    ] {
        if !Path::new(shell).exists() {
            continue;
        }
        let mut kit = Kit::new();
        let profile = "echo noise; export FROM_SHELL=yes OPERATOR=0; cd /; ulimit -Sn 77; umask 077\n";
        let mut plan = with_shell(&kit, shell, (file, profile));
        plan.umask = Some(0o022);
        plan.limits.push(Limit {
            name: "nofile".to_owned(),
            soft: Some(200),
            hard: Some(300),
        });
        at_home(&mut kit);
        let up = kit.up(plan);
        let told = told(&kit);
        for line in ["FROM_SHELL=yes", "OPERATOR=1", "200", "0022"] {
            assert!(told.lines().any(|told| told == line), "{shell}: {line} in {told}");
        }
        assert!(told.starts_with(&*kit.root().to_string_lossy()));
        assert_eq!(up.journey.state(Step::SubprocessOsShell), StepState::Performed);
    }
}

#[test]
fn a_login_shell_that_hangs_is_the_step_that_is_named() {
    let mut kit = Kit::new();
    let mut plan = with_shell(&kit, "/bin/bash", (".bash_profile", "sleep 1000\n"));
    plan.start_timeout = super::SHORT;
    at_home(&mut kit);
    let report = kit.failure(plan);
    assert_contains(report.failure.problem.as_str(), "SUBPROCESS_OS_SHELL");
    assert!(report.failure.solution.as_str().contains("start-up files"));
}

#[test]
fn a_login_shell_that_ends_is_the_step_that_is_named() {
    let mut kit = Kit::new();
    let profile = (".bash_profile", "echo 'no more' >&2; exit 9\n");
    let plan = with_shell(&kit, "/bin/bash", profile);
    at_home(&mut kit);
    let report = kit.failure(plan);
    assert_eq!(report.failure.step, Step::SubprocessOsShell, "{}", report.text());
    let exit = report.exit.map(|ended| ended.describe());
    assert_eq!(exit.as_deref(), Some("exited with code 9"));
    assert!(report.output.contains("no more"), "{}", report.text());
}

#[test]
fn a_limit_that_is_none_is_named() {
    let mut kit = Kit::new();
    let mut plan = kit.native(UP);
    plan.limits.push(Limit {
        name: "patience".to_owned(),
        soft: Some(1),
        hard: Some(1),
    });
    let report = kit.failure(plan);
    assert_contains(&report.failure.summary, "patience");
    assert_eq!(report.failure.step, Step::SubprocessSetupperBeforeShell);
}
