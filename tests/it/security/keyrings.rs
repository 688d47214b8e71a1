//! Session keyrings: no pool can read or revoke another's keys.

use super::needs_root;
use crate::support::prelude::*;

const CGI: &str = r#"#!/usr/bin/python3
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
keyctl, add_key = {"x86_64": (250, 248), "aarch64": (219, 217)}[platform.machine()]
ring = libc.syscall(keyctl, 0, -3, 0)
key = libc.syscall(add_key, b"user", b"secret", b"of this pool", 12, -3)
print("Content-Type: text/plain\r\n\r\n%d %d" % (ring, key > 0), end="")
"#;

const PHP: &str = r#"<?php
$c = FFI::cdef('long syscall(long number, ...);');
[$keyctl, $add_key] = ['x86_64' => [250, 248], 'aarch64' => [219, 217]][php_uname('m')];
$ring = $c->syscall($keyctl, 0, -3, 0);
$key = $c->syscall($add_key, 'user', 'secret', 'of this pool', 12, -3);
$opened = $c->syscall($keyctl, 5, -3, 0x3f3f3f3f);
echo $ring, ' ', $key, ' ', $opened;
"#;

#[test]
fn no_pool_shares_a_keyring_with_another() {
    skip_if!(needs_root());
    let php = concat!(
        "runtime = \"php\"\nversion = \"",
        env!("FORKYARD_PHP"),
        "\"\npreloader = \"zygote\"\nphp_admin_value = { \"ffi.enable\" = \"1\" }\n"
    );
    let daemon = Daemon::start(|dir| {
        let cgi = &application_in("cgi", dir, "");
        let settings = |user: &str| format!("user = \"{user}\"\npm = \"static\"\nmax_children = 1\n");
        pool(dir, "one", &settings("www-data"), cgi)
            + &pool(dir, "two", &settings("nobody"), cgi)
            + &pool(dir, "three", &settings("www-data"), php)
            + &pool(dir, "four", &settings("nobody"), php)
    });
    write_program(&daemon.dir.join("ring.cgi"), CGI);
    daemon.write("ring.php", PHP);
    let own = ["one", "two"].map(|pool| daemon.get(pool, "ring.cgi").body());
    let rings: BTreeSet<&str> = own.iter().filter_map(|said| said.strip_suffix(" 1")).collect();
    assert_eq!(rings.len(), 2, "{own:?}\n{}", daemon.log());
    each(["three", "four"], |pool| {
        assert_eq!(daemon.get(pool, "ring.php").body(), "-1 -1 -1");
    });
}
