//! Finds which of this user's processes uses a port, through /proc.

use std::fs;
use std::os::unix::ffi::OsStrExt;

const LISTENS: &str = "0A";

pub(crate) fn holder(port: u16) -> Option<(i32, String)> {
    let sockets = inodes(port);
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut holders = numbers.filter(|pid| has_one(*pid, &sockets));
    let pid = holders.next()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, name.trim().to_owned()))
}

fn inodes(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let wanted = format!(":{port:04X}");
    let mut found = Vec::new();
    for line in tables.iter().flat_map(|table| table.lines()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [_, local, _, LISTENS, _, _, _, _, _, inode, ..] = fields[..]
            && local.ends_with(&wanted)
        {
            found.push(format!("socket:[{inode}]"));
        }
    }
    found
}

fn has_one(pid: i32, sockets: &[String]) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let mut links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| {
        sockets
            .iter()
            .any(|socket| link.as_os_str().as_bytes() == socket.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_this_process_leads_to_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(holder(port).unwrap().0, std::process::id() as i32);
        drop(listener);
        assert_eq!(holder(port), None);
    }
}
