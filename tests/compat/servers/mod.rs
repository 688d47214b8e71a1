//! The servers that are compared.

pub(crate) mod alone;
pub(crate) mod forkyard;
pub(crate) mod php_fpm;

use crate::support::prelude::*;
pub(crate) use crate::support::{daemon::directory, is_root};

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    pub(crate) workers: u32,
    pub(crate) php_value: Vec<(String, String)>,
    pub(crate) php_admin_value: Vec<(String, String)>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) limit_extensions: Option<Vec<String>>,
    pub(crate) php_ini: String,
    pub(crate) ping: bool,
    pub(crate) application: String,
    pub(crate) max_requests: Option<u32>,
    pub(crate) ondemand: bool,
    pub(crate) started_with: Vec<(String, String)>,
}

impl Setup {
    pub(crate) fn new() -> Setup {
        let setup = Setup {
            workers: 1,
            ..Setup::default()
        };
        match std::env::var_os(super::heap::WANTED) {
            Some(_) => setup.garbage(),
            None => setup,
        }
    }

    pub(crate) fn value(mut self, name: &str, value: &str) -> Setup {
        self.php_value.push((name.into(), value.into()));
        self
    }

    pub(crate) fn admin_value(mut self, name: &str, value: &str) -> Setup {
        self.php_admin_value.push((name.into(), value.into()));
        self
    }

    pub(crate) fn ini(mut self, text: &str) -> Setup {
        self.php_ini.push_str(text);
        self.php_ini.push('\n');
        self
    }

    pub(crate) fn garbage(mut self) -> Setup {
        if self.started_with.is_empty() {
            let variables = super::heap::GARBAGE.map(|(name, value)| (name.to_owned(), value.to_owned()));
            self.started_with.extend(variables.clone());
            self.env.extend(variables);
        }
        self
    }

    /// A php.ini for both: the distribution's, followed by this setup's lines.
    fn write_php_ini(&self, directory: &Path) -> PathBuf {
        let path = directory.join("php.ini");
        let usual = read_file(concat!("/etc/php/", env!("FORKYARD_PHP"), "/fpm/php.ini"));
        fs::write(&path, format!("{usual}\n{}", self.php_ini)).expect("the directory is writable");
        path
    }
}

fn wait_for(socket: &Path, mut has_ended: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !listens(socket) {
        assert!(!has_ended(), "the server has ended");
        assert!(Instant::now() < end, "{} takes no connections", socket.display());
        std::thread::yield_now();
    }
}

/// Whether a socket is listening. Doesn't connect: that would make an ondemand pool start PHP.
fn listens(socket: &Path) -> bool {
    /// The flag of a listening socket (proc_net(5)).
    const ACCEPTS: &str = "00010000";
    let path = socket.display().to_string();
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut sockets = sockets.lines().map(|line| line.split_whitespace());
    sockets.any(|mut fields| fields.nth(3) == Some(ACCEPTS) && fields.last() == Some(&path))
        && socket.exists()
}
