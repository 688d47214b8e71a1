use super::*;
use std::sync::Arc;
use std::time::Duration;

const WORKER: &str = "worker = \"/srv/www\"\nworker_mode = \"loop\"\n";

fn text(own: &str, application: &str) -> String {
    pool("").replace("pm = ", &format!("{own}pm = ")) + application
}

fn only(text: &str) -> Arc<Pool> {
    valid(text).pools.remove(0)
}

#[test]
fn a_worker_script_has_limits_and_a_preloader_of_its_own() {
    let pool = only(&text("", WORKER));
    assert_eq!(
        (pool.retirement.max_requests, pool.retirement.max_requests_jitter),
        (Some(500), 50)
    );
    assert_eq!(pool.retirement.memory_limit, Some(128 << 20));
    let Application::Php(php) = &pool.application else {
        panic!("PHP");
    };
    assert_eq!(php.preloading, Preloading::Own);
    assert_eq!((php.warm_up, php.start_timeout), (0, Duration::from_secs(30)));
    let worker = php.worker.as_ref().expect("a worker script");
    assert_eq!(worker.path, Path::new("/srv/www"));
    assert_eq!(worker.boot_connections, BootConnections::Cut);

    let more = "loop_requests = 0\nloop_memory = \"1G\"\nboot_timeout = \"5s\"\nboot_connections = \"keep\"\n\
                watch = [\"/srv/app/src/**/*.php\"]\nwarm_up_requests = [\"/\", \"/a?b=c\"]\nwarm_up_server = { HTTP_HOST = \"a.example\" }\n";
    let pool = only(&text("", &format!("{WORKER}{more}")));
    assert_eq!(
        (pool.retirement.max_requests, pool.retirement.max_requests_jitter),
        (None, 0)
    );
    assert_eq!(pool.retirement.memory_limit, Some(1 << 30));
    let Application::Php(php) = &pool.application else {
        panic!("PHP");
    };
    assert_eq!(php.start_timeout, Duration::from_secs(5));
    let worker = php.worker.as_ref().expect("a worker script");
    assert_eq!(worker.warm_up_requests, ["/", "/a?b=c"]);
    assert!(worker.watch[0].matches(Path::new("/srv/app/src/a/b.php")));
    assert_eq!(
        worker.warm_up_server,
        [("HTTP_HOST".to_owned(), "a.example".to_owned())]
    );

    let idle = text("", WORKER).replace("pm = \"static\"", "pm = \"ondemand\"");
    let Application::Php(php) = &only(&idle).application else {
        panic!("PHP");
    };
    assert_eq!(php.preloading, Preloading::Own);

    let own = "max_requests = 7\nmax_requests_jitter = 2\nmemory_limit = \"64M\"\n";
    let pool = only(&text(own, WORKER));
    assert_eq!(
        (pool.retirement.max_requests, pool.retirement.max_requests_jitter),
        (Some(7), 2)
    );
    assert_eq!(pool.retirement.memory_limit, Some(64 << 20));
}

#[test]
fn a_worker_that_is_put_back_has_limits_of_its_own() {
    let with = |own: &str, application: &str| {
        let mode = "worker = \"/srv/www\"\nworker_mode = \"snapshot\"\n";
        text(own, &format!("{mode}{application}"))
    };
    let isolation = |pool: &Pool| match &pool.application {
        Application::Php(php) => {
            let worker = php.worker.as_ref().expect("a worker script");
            assert_eq!(worker.mode, WorkerMode::Snapshot);
            worker.isolation
        }
        _ => panic!("PHP"),
    };
    let pool = only(&with("", ""));
    assert_eq!(
        (pool.retirement.max_requests, pool.retirement.max_requests_jitter),
        (Some(10_000), 1000)
    );
    assert_eq!(
        (pool.retirement.memory_limit, isolation(&pool)),
        (None, Isolation::Auto)
    );
    let pool = only(&with(
        "max_requests = 7\nmemory_limit = \"1G\"\n",
        "isolation = \"rewind\"\n",
    ));
    assert_eq!(
        (pool.retirement.max_requests, pool.retirement.max_requests_jitter),
        (Some(7), 0)
    );
    assert_eq!(
        (pool.retirement.memory_limit, isolation(&pool)),
        (Some(1 << 30), Isolation::Rewind)
    );
    for (own, application, expected) in [
        (
            "",
            "loop_requests = 3\n",
            "loop_requests: with worker_mode = \"snapshot\" no request leaves anything; write max_requests, if anything",
        ),
        (
            "",
            "loop_memory = \"1G\"\n",
            "loop_memory: with worker_mode = \"snapshot\" no request leaves anything; write memory_limit, if anything",
        ),
        (
            "",
            "isolation = \"fork\"\n",
            "isolation: \"fork\" is not a way to get rid of a request; write \"rewind\", or \"auto\" to boot the application in each request where the kernel can't put a worker back",
        ),
    ] {
        let lines = found(&with(own, application), &ROOT);
        let wanted = format!("[pool www] application.{expected}");
        assert!(
            matches!(lines.as_slice(), [line] if line.ends_with(&wanted)),
            "{lines:?}"
        );
    }
}

#[test]
fn what_can_not_go_with_a_worker_script_is_refused() {
    let with = |own: &str, application: &str| found(&text(own, &format!("{WORKER}{application}")), &ROOT);
    let leave = "; leave it out";
    for (own, application, expected) in [
        ("", "preloader = \"zygote\"\n", "preloader: a worker script boots in a preloader of its pool's own; leave it out, or write preloader = \"own\"".to_owned()),
        ("", "limit_extensions = []\n", format!("limit_extensions: with worker the script is the only one that is run{leave}")),
        ("", "warm_up = 3\n", "warm_up: the boot compiles the files that the application needs; write warm_up_requests instead".to_owned()),
        ("", "start_timeout = 3\n", "start_timeout: boot_timeout is about PHP's start as well; write boot_timeout instead".to_owned()),
        ("max_requests = 3\n", "loop_requests = 3\n", "loop_requests: max_requests already does this; leave out one of the two".to_owned()),
        ("memory_limit = \"1G\"\n", "loop_memory = \"1G\"\n", "loop_memory: memory_limit already does this; leave out one of the two".to_owned()),
        ("", "warm_up_requests = [\"login\"]\n", "warm_up_requests: \"login\" is not the path of a request; write it as in a URL, for example \"/\" or \"/login?a=b\"".to_owned()),
        ("", "warm_up_server = { \"a b\" = \"c\" }\n", "warm_up_server: \"a b\" can't be the name of a variable; write it as in $_SERVER, for example HTTP_HOST".to_owned()),
        ("", "boot_connections = \"close\"\n", "boot_connections: \"close\" is not a way to treat connections of the boot; write \"cut\", \"refuse\" or \"keep\"".to_owned()),
        ("", "isolation = \"auto\"\n", "isolation: with worker_mode = \"loop\" a worker keeps its state between requests; leave it out, or write worker_mode = \"snapshot\"".to_owned()),
        ("", "watch = [\"src/*.php\"]\n", "watch: \"src/*.php\" is not an absolute path; start it with /, and without \"..\", for example \"/srv/app/src/**/*.php\"".to_owned()),
        ("", "watch = [\"/srv/www\"]\n", "watch: \"/srv/www\" is a directory; name the files in it, for example \"/srv/www/**/*.php\"".to_owned()),
        ("", "boot_timeout = 0\n", "boot_timeout: 0 is too short; give a duration above zero, for example \"10s\"".to_owned()),
    ] {
        let lines = with(own, application);
        let wanted = format!("[pool www] application.{expected}");
        assert!(matches!(lines.as_slice(), [line] if line.ends_with(&wanted)), "{lines:?}");
    }
    let lines = found(&text("", "worker = \"/srv/www\"\n"), &ROOT);
    assert!(
        matches!(lines.as_slice(), [line] if line.contains("application.worker_mode")),
        "{lines:?}"
    );
    let lines = found(
        &text("", "worker = \"/srv/www\"\nworker_mode = \"fork\"\n"),
        &ROOT,
    );
    assert!(
        matches!(lines.as_slice(), [line] if line.ends_with("\"fork\" is not a way to run a worker script; write \"loop\" or \"snapshot\"")),
        "{lines:?}"
    );
    for key in [
        "worker_mode = \"loop\"",
        "isolation = \"rewind\"",
        "loop_requests = 1",
        "loop_memory = 1",
        "boot_timeout = 1",
        "boot_connections = \"keep\"",
        "warm_up_requests = [\"/\"]",
        "warm_up_server = { A = \"b\" }",
        "watch = [\"/srv/app/*.php\"]",
    ] {
        let lines = found(&text("", &format!("{key}\n")), &ROOT);
        let wanted = "there is no worker script that it could be about; leave it out, or write worker = \"/path/of/the/script.php\"";
        assert!(
            matches!(lines.as_slice(), [line] if line.ends_with(wanted)),
            "{lines:?}"
        );
    }
}
