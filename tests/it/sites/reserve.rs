//! Places that only applications without an instance can take.

use super::Sites;
use super::changes::reload;
use crate::support::prelude::*;

const SLEEPER: &str =
    "while (!file_exists(__DIR__ . '/tmp/gate')) { clearstatcache(); usleep(10000); } echo 'slept';";

fn sleepers(sites: &Sites, root: &Path, count: usize) -> Vec<Client> {
    let params = Params::get(root, "index.php", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
    let send = |_| sites.daemon.send("sites", &params);
    (0..count).map(send).collect()
}

#[test]
fn six_sleeping_requests_of_one_application_leave_another_its_answer() {
    let sites = Sites::start("");
    let root = sites.php("sleeper", 0, SLEEPER);
    sites.php("quiet", 1, "echo 'quiet';");
    let clients = sleepers(&sites, &root, 6);
    wait_until("each sleeps, or waits for another", || {
        let book = &sites.status()["book"];
        let [active, waiting] = ["active", "waiting"].map(|key| book[key].as_u64().unwrap_or(0));
        let is_starting = book["applications"][0]["starting"] != 0;
        active > 0 && active + waiting == 6 && !is_starting
    });
    assert_eq!(sites.instances().len(), 5);
    for _ in 0..3 {
        assert_eq!(sites.body("/quiet/"), "quiet");
    }
    assert_eq!(sites.instances().len(), 6);
    fs::write(root.join("tmp/gate"), "").expect("write");
    for mut client in clients {
        assert_eq!(client.answer().expect("answer").body(), "slept");
    }
}

#[test]
fn a_reload_changes_the_reserve() {
    let sites = Sites::start("max = 4\nreserve = 3");
    let root = sites.php("sleeper", 0, SLEEPER);
    let clients = sleepers(&sites, &root, 5);
    wait_until("one of them sleeps", || sites.instances().len() == 1);
    reload(&sites, "max = 4\nreserve = 1", "");
    wait_until("three sleep", || sites.instances().len() == 3);
    fs::write(root.join("tmp/gate"), "").expect("write");
    for mut client in clients {
        assert_eq!(client.answer().expect("answer").body(), "slept");
    }
}
