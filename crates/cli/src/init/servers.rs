//! Finds nginx's existing sites.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A `server` block for port 80.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Server {
    names: Vec<(String, Place)>,
    place: Place,
    /// Whether the block has `default_server`.
    is_default: bool,
    is_plain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Returns the servers of the file's directory; for one of nginx's directories, all of nginx's servers.
pub(super) fn beside(file: &Path) -> Vec<Server> {
    let own = super::SITES.map(|(directory, _)| PathBuf::from(directory));
    let directory = file.parent().unwrap_or(Path::new("."));
    let mut directories = vec![directory.to_path_buf()];
    let is_own = own.iter().any(|known| known == directory);
    let mut files = Vec::new();
    if is_own {
        directories = own.to_vec();
        // In nginx's order: nginx.conf, then the directories it includes.
        files.push(PathBuf::from("/etc/nginx/nginx.conf"));
        directories.reverse();
    }
    for directory in directories {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> = paths.filter(|path| is_read(path)).collect();
        paths.sort();
        files.extend(paths);
    }
    let read = |path: &PathBuf| Some(servers(path, &fs::read_to_string(path).ok()?));
    files
        .iter()
        .filter(|path| *path != file)
        .filter_map(read)
        .flatten()
        .collect()
}

/// Whether nginx reads the file: every file in sites-enabled, and elsewhere files ending with `.conf`.
fn is_read(path: &Path) -> bool {
    let takes_all = path
        .parent()
        .is_some_and(|parent| parent.ends_with("sites-enabled"));
    path.is_file() && (takes_all || path.extension().is_some_and(|ending| ending == "conf"))
}

/// Returns the declared default server, or the first server if none is declared.
pub(super) fn default(servers: &[Server]) -> Option<&Place> {
    let plain = || servers.iter().filter(|server| server.is_plain);
    let found = plain().find(|server| server.is_default).or(plain().next())?;
    Some(&found.place)
}

/// Returns the place of the server with this name.
pub(super) fn named<'a>(servers: &'a [Server], name: &str) -> Option<&'a Place> {
    let mut names = servers
        .iter()
        .filter(|server| server.is_plain)
        .flat_map(|server| &server.names);
    let found = names.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(&found.1)
}

fn servers(file: &Path, text: &str) -> Vec<Server> {
    let place = |line| Place {
        file: file.to_path_buf(),
        line,
    };
    let mut found: Vec<Server> = Vec::new();
    let (mut depth, mut inside, mut listens) = (0_usize, None, false);
    let mut words: Vec<(String, usize)> = Vec::new();
    for (word, line, is_quoted) in tokens(text) {
        let mark = if is_quoted { "" } else { word.as_str() };
        match mark {
            "{" => {
                depth += 1;
                let opens = words.len() == 1 && words[0].0 == "server" && inside.is_none();
                if opens {
                    (inside, listens) = (Some(depth), false);
                    found.push(Server {
                        names: Vec::new(),
                        place: place(words[0].1),
                        is_default: false,
                        is_plain: false,
                    });
                }
                words.clear();
            }
            "}" => {
                if inside == Some(depth) {
                    inside = None;
                    // A server without `listen` uses port 80.
                    if let Some(server) = found.last_mut().filter(|_| !listens) {
                        server.is_plain = true;
                    }
                }
                depth = depth.saturating_sub(1);
                words.clear();
            }
            ";" => {
                if let (Some(server), true) = (found.last_mut(), inside == Some(depth)) {
                    match words.first().map(|word| word.0.as_str()) {
                        Some("listen") => {
                            listens = true;
                            let is_plain = words.get(1).is_some_and(|word| is_port_80(&word.0));
                            let is_default = |word: &(String, usize)| {
                                matches!(word.0.as_str(), "default_server" | "default")
                            };
                            server.is_plain |= is_plain;
                            server.is_default |= is_plain && words.iter().any(is_default);
                        }
                        Some("server_name") => {
                            let names = words.drain(1..).map(|(name, line)| (name, place(line)));
                            server.names.extend(names);
                        }
                        _ => {}
                    }
                }
                words.clear();
            }
            _ => words.push((word, line)),
        }
    }
    found
}

/// `80`, `*:80`, `[::]:80`, `192.0.2.1`, but no other port and no unix socket.
fn is_port_80(address: &str) -> bool {
    if address.starts_with("unix:") {
        return false;
    }
    let port = match address.strip_prefix('[') {
        Some(rest) => rest.split_once(']').and_then(|(_, rest)| rest.strip_prefix(':')),
        None if address.bytes().all(|byte| byte.is_ascii_digit()) => Some(address),
        None => address.rsplit_once(':').map(|(_, port)| port),
    };
    port.is_none_or(|port| port == "80")
}

/// Returns the words of an nginx file, each with its line and whether it is quoted.
fn tokens(text: &str) -> Vec<(String, usize, bool)> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => line += 1,
            '#' => while letters.next_if(|letter| *letter != '\n').is_some() {},
            '{' | '}' | ';' => tokens.push((letter.to_string(), line, false)),
            '"' | '\'' => {
                let begin = line;
                let mut word = String::new();
                while let Some(inner) = letters.next().filter(|inner| *inner != letter) {
                    line += usize::from(inner == '\n');
                    word.push(if inner == '\\' {
                        letters.next().unwrap_or(inner)
                    } else {
                        inner
                    });
                }
                tokens.push((word, begin, true));
            }
            letter if letter.is_whitespace() => {}
            letter => {
                let mut word = letter.to_string();
                let ends = |letter: &char| letter.is_whitespace() || ";{".contains(*letter);
                // `${NAME}` is part of the word.
                while let Some(next) =
                    letters.next_if(|next| !ends(next) || (word.ends_with('$') && *next == '{'))
                {
                    word.push(next);
                }
                tokens.push((word, line, false));
            }
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Server> {
        servers(Path::new("/etc/nginx/sites-enabled/x"), text)
    }

    #[test]
    fn servers_of_port_80_have_their_names() {
        let found = read(
            "# server { server_name no; }\nmap $a $b { default 1; }\nhttp { server {\n  server_name a.test \"b.test\"\n    c.test; # d\n  \
             location / { set $x \"}\"; rewrite ^/${y} /; }\n}\nserver { listen 443 ssl; server_name t.test; }\n\
             server { listen [::]:80 default_server; server_name _; } }",
        );
        assert_eq!(found.len(), 3);
        let at = |name| named(&found, name).map(ToString::to_string);
        assert_eq!(at("a.test").as_deref(), Some("/etc/nginx/sites-enabled/x:4"));
        assert_eq!(at("B.TEST").as_deref(), Some("/etc/nginx/sites-enabled/x:4"));
        assert_eq!(at("c.test").as_deref(), Some("/etc/nginx/sites-enabled/x:5"));
        assert_eq!((at("t.test"), at("no"), at("d")), (None, None, None));
        let default = default(&found).map(ToString::to_string);
        assert_eq!(default.as_deref(), Some("/etc/nginx/sites-enabled/x:9"));
    }

    #[test]
    fn the_first_server_of_the_port_is_the_default_if_none_says_so() {
        let found = read("server { listen 8080; }\nserver { listen 80; }\nserver { }");
        assert_eq!(default(&found).map(|found| found.line), Some(2));
        assert_eq!(default(&read("server { listen 443 ssl default_server; }")), None);
    }

    #[test]
    fn port_80_has_many_forms() {
        for (address, wanted) in [
            ("80", true),
            ("*:80", true),
            ("[::]:80", true),
            ("[::1]", true),
            ("192.0.2.1", true),
            ("192.0.2.1:80", true),
            ("localhost", true),
            ("8080", false),
            ("*:8080", false),
            ("[::]:443", false),
            ("unix:/run/a.sock", false),
        ] {
            assert_eq!(is_port_80(address), wanted, "{address}");
        }
    }
}
