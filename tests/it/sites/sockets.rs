//! The pool's socket, deleted under it.

use super::Sites;
use std::fs;

#[test]
fn a_deleted_socket_of_an_application_pool_is_bound_again() {
    let sites = Sites::start("max = 3");
    sites.php("app", 0, "echo 'fine';");
    assert_eq!(sites.body("/app/"), "fine");
    let (router, socket) = (sites.companion("router"), sites.daemon.socket("sites"));
    fs::remove_file(&socket).expect("remove");
    let text = String::from_utf8_lossy(&sites.forkyard(&["reload"]).stdout).into_owned();
    assert_eq!(text, "replaced sites: clients could not reach its socket\n");
    assert_eq!(sites.body("/app/"), "fine");
    crate::support::until("the first router's end", || {
        (!crate::support::process::runs(router)).then_some(())
    });
    assert_eq!(sites.body("/app/"), "fine");
}
