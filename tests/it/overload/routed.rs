//! Requests that wait in the router of an application pool.

use super::{APPLICATIONS, VISITOR};
use crate::support::prelude::*;

struct Pool {
    daemon: Daemon,
    root: PathBuf,
}

impl Pool {
    fn start() -> Pool {
        place_library();
        let daemon = Daemon::start(|dir| {
            let root = dir.join("apps/shop");
            fs::create_dir_all(root.join("tmp")).expect("mkdir");
            write_file(root.join("index.php"), APPLICATIONS[0].text);
            if is_root() {
                let user = nix::unistd::User::from_name("www-data")
                    .expect("users")
                    .expect("www-data");
                for path in [root.clone(), root.join("index.php")] {
                    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("chown");
                }
            }
            let dir = dir.display();
            format!(
                "[global]\ncontrol = \"{dir}/control.sock\"\n[pool.www]\n\
                 listen = {{ address = \"{dir}/www.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
                 [pool.www.applications]\ndirectories = [\"{dir}/apps\"]\nmin_uid = 1\nmax = 1\n"
            )
        });
        let root = daemon.dir.join("apps/shop");
        Pool { daemon, root }
    }

    fn params(&self, query: &str) -> Params {
        Params::get(&self.root, "index.php", query)
            .with("FORKYARD_APP_ROOT", &self.root.display().to_string())
            .with("REMOTE_ADDR", VISITOR)
    }

    fn begun(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.join("begun")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn application(&self) -> Value {
        let status = self.daemon.status(&["www"]);
        status["pools"][0]["applications"]["book"]["applications"][0].clone()
    }
}

#[test]
fn waiting_requests_of_an_application_pool_are_skipped_by_the_same_rule() {
    let pool = Pool::start();
    let go = pool.root.join("go");
    let mut held = pool.daemon.client("www");
    let query = format!("n=held&hold={}", go.display());
    held.send(&pool.params(&query), b"").expect("send");
    wait_until("the held request", || pool.begun() == ["held"]);
    let leave = |name: &str, changes: &[(&str, &str)]| {
        let params = pool.params(&format!("n={name}"));
        let params = changes
            .iter()
            .fold(params, |all, (name, value)| all.with(name, value));
        pool.daemon.client("www").send(&params, b"").expect("send");
    };
    leave("left", &[]);
    leave("posted", &[("REQUEST_METHOD", "POST")]);
    leave("own", &[("REMOTE_ADDR", "127.0.0.1")]);
    leave("wanted", &[("RUN_ABANDONED", "1")]);
    let mut half = pool.daemon.client("www");
    half.send(&pool.params("n=half"), b"").expect("send");
    half.shut();
    wait_until("the request that is skipped", || {
        pool.application()["counters"]["abandoned"] == 1
    });
    write_file(&go, "");
    for client in [&mut held, &mut half] {
        assert_eq!(client.answer().expect("an answer").body(), "done");
    }
    wait_until("all requests", || pool.begun().len() == 5);
    assert_eq!(pool.begun(), ["held", "posted", "own", "wanted", "half"]);
}
