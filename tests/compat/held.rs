//! An edited php.ini takes effect with a reload, also in processes that are started before that.

use super::client::Request;
use super::scripts;
use super::servers::Setup;
use super::servers::php_fpm::{PHP_FPM, PhpFpm};
use crate::support::forkyard_fpm;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn an_edited_php_ini_is_read_by_a_reload() {
    let mut setup = Setup::new().ini("user_agent = before\n[HOST=other.example]\nprecision = 3");
    setup.ondemand = true;
    let everything = Request::get(&scripts(), "/likeness.php");
    let agent = Request::get(&scripts(), "/ini.php?names=user_agent,precision,memory_limit");
    let mut answers = Vec::new();
    for program in [PHP_FPM, forkyard_fpm()] {
        let server = PhpFpm::start_as(program, &setup);
        let path = server.directory().join("php.ini");
        let text = std::fs::read_to_string(&path).expect("it is ours");
        std::fs::write(&path, text.replace("= before", "= after")).expect("it is ours");
        let own = |request: &Request| {
            let body = request.send(&server.socket).body();
            body.replace(&server.directory().display().to_string(), "DIRECTORY")
        };
        let settings: serde_json::Value = serde_json::from_str(&own(&everything)).expect("JSON");
        let old = [
            own(&agent),
            own(&agent.clone().with("SERVER_NAME", "other.example")),
        ];
        assert!(old[0].contains("\"before\""), "{program}: {}", old[0]);
        server.reload();
        let end = Instant::now() + PATIENCE;
        while !own(&agent).contains("\"after\"") {
            assert!(Instant::now() < end, "{program}: {}", own(&agent));
            std::thread::yield_now();
        }
        answers.push((settings["settings"].clone(), settings["files"].clone(), old));
    }
    assert_eq!(answers[0], answers[1]);
}
