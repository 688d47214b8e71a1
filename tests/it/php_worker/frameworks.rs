//! The loops of frameworks' worker scripts: both boot the application at the first request, here a warm-up request.

use super::worker_pool;
use crate::support::prelude::*;

const APPLICATION: &str = r#"<?php
class Application
{
    public int $requests = 0;

    public function __construct()
    {
        file_put_contents(__DIR__ . '/boots', "boot\n", FILE_APPEND);
    }

    public function handle(): void
    {
        $this->requests++;
        if ($_SERVER['REQUEST_URI'] === '/broken') {
            throw new RuntimeException('broken');
        }
        header('Content-Type: text/plain');
        echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ', $this->requests, ' ',
            $_SERVER['APP_RUNTIME_MODE'] ?? '-', ' ', $_COOKIE['user'] ?? 'nobody', ' ', $_SERVER['HTTP_X_ONCE'] ?? '-';
    }

    public function terminate(): void
    {
        file_put_contents(__DIR__ . '/terminated', $_SERVER['REQUEST_URI'] . "\n", FILE_APPEND);
    }
}
"#;

/// A runner like Symfony's runtime: the boot's variables are defaults for each request, the kernel boots with the first
/// request, and terminates after the answer.
const SYMFONY: &str = r#"<?php
ignore_user_abort(true);
require __DIR__ . '/application.php';
$server = array_filter($_SERVER, fn (string $key) => !str_starts_with($key, 'HTTP_'), ARRAY_FILTER_USE_KEY);
$server['APP_RUNTIME_MODE'] = 'web=1&worker=1';
$kernel = null;
$handled = false;
$handler = static function () use (&$kernel, &$handled, $server): void {
    $_SERVER += $server;
    $kernel ??= new Application();
    $handled = true;
    $kernel->handle();
};
$loops = 0;
do {
    $ret = \frankenphp_handle_request($handler);
    if ($kernel && $handled) {
        $handled = false;
        $kernel->terminate();
    }
    gc_collect_cycles();
} while ($ret && ++$loops < 500);
exit(0);
"#;

/// A worker like Laravel Octane's: it requires the variables, catches exceptions, and counts to MAX_REQUESTS.
const OCTANE: &str = r#"<?php
if ((! ($_SERVER['FRANKENPHP_WORKER'] ?? false)) || ! function_exists('frankenphp_handle_request')) {
    echo 'FrankenPHP must be in worker mode to use this script.';
    exit(1);
}
ignore_user_abort(true);
require __DIR__ . '/application.php';
$worker = null;
$requestMax = $_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'];
$handleRequest = static function () use (&$worker) {
    try {
        $worker ??= new Application();
        $application = clone $worker;
        $application->handle();
        $worker->requests++;
    } catch (Throwable $e) {
        http_response_code(500);
        echo 'Internal Server Error';
        error_log($e->getMessage());
    }
};
try {
    $requestCount = 0;
    while (frankenphp_handle_request($handleRequest)) {
        if ($requestMax && ++$requestCount >= $requestMax) {
            break;
        }
        gc_collect_cycles();
    }
} finally {
    $worker?->terminate();
}
"#;

#[test]
fn their_loops_run_as_they_are() {
    let daemon = Daemon::start(|dir| {
        let mut text = String::new();
        for (name, script) in [("symfony", SYMFONY), ("octane", OCTANE)] {
            let root = dir.join(name);
            make_folder(&root);
            fs::write(root.join("application.php"), APPLICATION).expect("write");
            fs::write(root.join("worker.php"), script).expect("write");
            let settings = "pm = \"static\"\nmax_children = 2\n";
            let application = "warm_up_requests = [\"/\"]\n";
            text += &worker_pool(dir, name, &format!("{name}/worker.php"), settings, application);
        }
        text
    });
    for (pool, mode) in [("symfony", "web=1&worker=1"), ("octane", "-")] {
        daemon.wait_for_workers(pool, 2);
        let root = daemon.dir.join(pool);
        let get = |uri: &str| Params::get(&root, "index.php", "").with("REQUEST_URI", uri);
        let ask = |params: &Params| daemon.client(pool).request(params, b"").expect("answer");
        let rich = get("/a")
            .with("HTTP_COOKIE", "user=alice")
            .with("HTTP_X_ONCE", "once");
        for _ in 0..4 {
            let said = ask(&rich).body();
            let words: Vec<&str> = said.split(' ').collect();
            assert_eq!(
                [words[0], words[1], words[3], words[4], words[5]],
                ["GET", "/a", mode, "alice", "once"]
            );
            assert!(
                words[2].parse::<u32>().expect("a number") > 1,
                "the warm-up request came first"
            );
            let said = ask(&get("/b")).body();
            assert!(said.ends_with(&format!(" {mode} nobody -")), "{said}");
            let broken = ask(&get("/broken"));
            assert_starts(&broken.text(), "Status: 500");
            assert_contains(&broken.error_text(), "broken");
        }
        let boots = read_file(root.join("boots"));
        assert_eq!(boots, "boot\n", "{pool}: workers come out of one boot");
    }
    let terminated = daemon.dir.join("symfony/terminated");
    until("terminate of each", || {
        let text = fs::read_to_string(&terminated).ok()?;
        (text.matches("/a\n").count() == 4 && text.matches("/b\n").count() == 4).then_some(())
    });
}
