//! A web server for one test, with a temporary directory and free ports.

use super::backends::Backends;
use crate::support::prelude::*;

pub(super) struct Front {
    pub(super) ports: Vec<u16>,
    _nginx: Option<Nginx>,
    child: Option<Child>,
    dir: tempfile::TempDir,
}

impl Front {
    pub(super) fn nginx(example: &str, backends: &Backends) -> Front {
        let (ports, sites) = sites(example, backends);
        let named: Vec<String> = (sites.iter().enumerate())
            .map(|(index, site)| {
                let site = site.replace("upstream php", &format!("upstream php{index}"));
                site.replace("fastcgi_pass php;", &format!("fastcgi_pass php{index};"))
            })
            .collect();
        Front {
            ports,
            _nginx: Some(Nginx::start("return 404;", &named.join("\n"))),
            child: None,
            dir: directory(),
        }
    }

    pub(super) fn apache(example: &str, backends: &Backends) -> Front {
        const MODULES: &[&str] = &[
            "mpm_event",
            "authz_core",
            "dir",
            "mime",
            "env",
            "rewrite",
            "proxy",
            "proxy_fcgi",
            "proxy_balancer",
            "slotmem_shm",
            "lbmethod_byrequests",
        ];
        let dir = directory();
        let path = dir.path().display();
        let (ports, sites) = sites(example, backends);
        let mut text = format!(
            "ServerRoot {path}\nServerName localhost\nPidFile {path}/pid\nErrorLog {path}/error.log\nDefaultRuntimeDir {path}\n\
             TypesConfig /etc/mime.types\nStartServers 1\nThreadsPerChild 25\n"
        );
        for module in MODULES {
            text.push_str(&format!(
                "LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so\n"
            ));
        }
        if is_root() {
            text.push_str("User www-data\nGroup www-data\n");
        }
        for (index, (port, site)) in ports.iter().zip(&sites).enumerate() {
            let site = site.replace("balancer://php", &format!("balancer://php{index}"));
            text.push_str(&format!("Listen 127.0.0.1:{port}\n{site}"));
        }
        let file = dir.path().join("apache.conf");
        fs::write(&file, text).expect("apache.conf");
        let mut command = Command::new("/usr/sbin/apache2");
        command.args(["-D", "FOREGROUND", "-f"]).arg(&file);
        Front::launch(command, ports, dir)
    }

    pub(super) fn lighttpd(example: &str, backends: &Backends) -> Front {
        let dir = directory();
        let path = dir.path().display();
        let (ports, sites) = sites(example, backends);
        let user = if is_root() {
            "server.username = \"www-data\"\nserver.groupname = \"www-data\"\n"
        } else {
            ""
        };
        let html = backends.site.path().join("html");
        let mut text = format!(
            "server.modules = (\"mod_rewrite\", \"mod_fastcgi\")\nserver.document-root = \"{}\"\n{user}\
             server.bind = \"127.0.0.1\"\nserver.port = {}\nserver.errorlog = \"{path}/error.log\"\n\
             server.upload-dirs = (\"{path}\")\n",
            html.display(),
            free_port()
        );
        for (port, site) in ports.iter().zip(&sites) {
            text.push_str(&format!(
                "$SERVER[\"socket\"] == \"127.0.0.1:{port}\" {{\n{site}}}\n"
            ));
        }
        let file = dir.path().join("lighttpd.conf");
        fs::write(&file, text).expect("lighttpd.conf");
        let mut command = Command::new("/usr/sbin/lighttpd");
        command.arg("-D").arg("-f").arg(&file);
        Front::launch(command, ports, dir)
    }

    pub(super) fn caddy(example: &str, backends: &Backends) -> Front {
        let dir = directory();
        let (ports, sites) = sites(example, backends);
        let text = format!(
            "{{\nadmin off\nauto_https off\ndefault_bind 127.0.0.1\n}}\n{}",
            sites.join("\n")
        );
        let file = dir.path().join("Caddyfile");
        fs::write(&file, text).expect("Caddyfile");
        let mut command = Command::new("caddy");
        command
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(&file)
            .env("HOME", dir.path())
            .env("XDG_DATA_HOME", dir.path())
            .env("XDG_CONFIG_HOME", dir.path());
        Front::launch(command, ports, dir)
    }

    fn launch(mut command: Command, ports: Vec<u16>, dir: tempfile::TempDir) -> Front {
        let log = fs::File::create(dir.path().join("said")).expect("said");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the web server is installed");
        let mut front = Front {
            ports,
            _nginx: None,
            child: Some(child),
            dir,
        };
        wait_until("the web server to listen", || {
            if let Some(child) = &mut front.child {
                let ended = child.try_wait().expect("our child");
                assert!(ended.is_none(), "it ended: {}", said(front.dir.path()));
            }
            let open = |port: &u16| TcpStream::connect(("127.0.0.1", *port)).is_ok();
            front.ports.iter().all(open)
        });
        front
    }
}

fn sites(example: &str, backends: &Backends) -> (Vec<u16>, Vec<String>) {
    // All ports are bound before any is released, so that they differ.
    let taken: Vec<TcpListener> = (backends.all.iter())
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
        .collect();
    let port = |taken: &TcpListener| taken.local_addr().expect("it is bound").port();
    let ports: Vec<u16> = taken.iter().map(port).collect();
    let all = backends.all.iter().zip(&ports);
    let sites = all.map(|(backend, port)| backends.settle(example, backend, *port));
    (ports.clone(), sites.collect())
}

fn said(dir: &Path) -> String {
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    read("said") + &read("error.log")
}

impl Drop for Front {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let children = process::children(child.id());
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        let _ = nix::sys::signal::kill(pid, Signal::SIGTERM);
        let _ = child.wait();
        for pid in children.into_iter().filter(|pid| process::runs(*pid)) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        if std::thread::panicking() {
            eprintln!("--- the web server said:\n{}\n---", said(self.dir.path()));
        }
    }
}
