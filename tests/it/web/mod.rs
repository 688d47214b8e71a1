//! `web`: the numbers of all pools over HTTP.

mod clients;
mod life;
mod many;
mod monitoring;
mod pages;
mod scraper;

use crate::support::prelude::*;

/// Where the numbers are.
#[derive(Debug, Clone)]
enum Place {
    Tcp(u16),
    Unix(PathBuf),
}

/// The kinds of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Unix,
}

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Unix];

impl Place {
    fn new(transport: Transport, dir: &Path) -> Place {
        match transport {
            Transport::Tcp => Place::Tcp(free_port()),
            Transport::Unix => Place::Unix(dir.join("web.sock")),
        }
    }

    /// The key of `[global]`.
    fn key(&self) -> String {
        match self {
            Place::Tcp(port) => format!("web = \"127.0.0.1:{port}\"\n"),
            Place::Unix(path) => format!("web = \"{}\"\n", path.display()),
        }
    }

    fn connect(&self) -> std::io::Result<Wire> {
        let wire = match self {
            Place::Tcp(port) => Wire::Tcp(TcpStream::connect(("127.0.0.1", *port))?),
            Place::Unix(path) => Wire::Unix(UnixStream::connect(path)?),
        };
        match &wire {
            Wire::Tcp(stream) => stream.set_read_timeout(Some(PATIENCE))?,
            Wire::Unix(stream) => stream.set_read_timeout(Some(PATIENCE))?,
        }
        Ok(wire)
    }

    /// Sends bytes, and returns all bytes until the connection is closed.
    fn talk(&self, bytes: &str) -> String {
        let mut wire = self.connect().expect("connect");
        wire.write_all(bytes.as_bytes()).expect("write");
        wire.rest()
    }

    fn get(&self, path: &str) -> Got {
        self.try_get(path).expect("an answer")
    }

    fn try_get(&self, path: &str) -> Option<Got> {
        let mut wire = self.connect().ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        wire.write_all(request.as_bytes()).ok()?;
        let mut all = Vec::new();
        wire.read_to_end(&mut all).ok()?;
        Got::read(&text_of(&all))
    }

    /// Waits until a probe has this status.
    fn wait_for(&self, path: &str, status: u16) -> Got {
        until(&format!("{path} to be {status}"), || {
            self.try_get(path).filter(|got| got.status == status)
        })
    }
}

enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Wire {
    fn rest(&mut self) -> String {
        let mut all = Vec::new();
        let _ = self.read_to_end(&mut all);
        text_of(&all)
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.read(buffer),
            Wire::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.write(bytes),
            Wire::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Got {
    status: u16,
    header: String,
    body: String,
}

impl Got {
    fn read(text: &str) -> Option<Got> {
        let (header, body) = text.split_once("\r\n\r\n")?;
        Some(Got {
            status: header.split(' ').nth(1)?.parse().ok()?,
            header: header.to_owned(),
            body: body.to_owned(),
        })
    }

    /// The value of a metric without further labels than the pool's.
    fn number(&self, name: &str) -> f64 {
        let line = self
            .body
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let line = line.unwrap_or_else(|| panic!("no {name} in {}", self.body));
        line.parse().expect("a number")
    }
}

/// A daemon with a pool `www` and the numbers.
struct Site {
    daemon: Daemon,
    place: Place,
}

impl Site {
    fn start(transport: Transport, workers: u32) -> Site {
        let (daemon, place) = start_by(transport, workers, |dir| forkyard(&["run"], dir));
        daemon.write("a.php", "<?php echo 'a';");
        Site { daemon, place }
    }

    /// Sends requests that last until [`Site::release`].
    fn hold(&self, count: usize) -> Vec<Client> {
        self.daemon.write(
            "hold.php",
            "<?php while (!file_exists(__DIR__ . '/go')) { usleep(2000); clearstatcache(); } echo 'held';",
        );
        let params = Params::get(&self.daemon.dir, "hold.php", "secret=7");
        let clients = (0..count).map(|_| self.daemon.send("www", &params)).collect();
        wait_until("busy workers", || {
            let status = self.daemon.status(&[]);
            status["pools"][0]["busy"] == count
        });
        clients
    }

    fn release(&self, clients: Vec<Client>) {
        self.daemon.write("go", "");
        for mut client in clients {
            assert_eq!(client.answer().expect("answer").body(), "held");
        }
    }

    /// The web processes.
    fn processes(&self) -> Vec<u32> {
        web_processes(self.daemon.pid())
    }
}

fn web_processes(master: u32) -> Vec<u32> {
    let mut all = process::children(master);
    all.retain(|pid| process::title(*pid) == "forkyard: web");
    all
}

/// Starts a daemon by a command, and waits until it answers at its address.
fn start_by(transport: Transport, workers: u32, command: impl FnOnce(&Path) -> Command) -> (Daemon, Place) {
    let mut place = None;
    let configure = |dir: &Path| configuration(dir, place.insert(Place::new(transport, dir)), workers);
    let daemon = Daemon::start_by(configure, command);
    let place = place.expect("an address");
    place.wait_for("/health/ready", 200);
    (daemon, place)
}

fn configuration(dir: &Path, place: &Place, workers: u32) -> String {
    let settings = format!("pm = \"static\"\nmax_children = {workers}\n");
    format!(
        "{}{}{}",
        with_control(dir),
        place.key(),
        php_pool(dir, &settings, "")
    )
}
