//! The files of a process's control groups. Pure.

/// Returns the files of a process's control group and of its ancestors, below the root of the control groups; the
/// group's own files come first. `own`: the text of /proc/self/cgroup; `names`: the file's name in version 2 and in
/// version 1.
pub(super) fn files(own: &str, controller: &str, names: [&str; 2]) -> Vec<String> {
    let mut files = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => (String::new(), names[0]),
            it if it.split(',').any(|name| name == controller) => (format!("{controller}/"), names[1]),
            _ => continue,
        };
        // In a container this path may not exist. The limits are then in the root's files.
        let mut path = path.trim_matches('/');
        loop {
            let slash = if path.is_empty() { "" } else { "/" };
            files.push(format!("{root}{path}{slash}{file}"));
            if path.is_empty() {
                break;
            }
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::files;

    #[test]
    fn a_group_and_its_ancestors_have_files() {
        let names = ["memory.max", "memory.limit_in_bytes"];
        let found = files("4:cpu,memory:/x\n1:name=systemd:/a\n0::/b/c\n", "memory", names);
        let expected = [
            "memory/x/memory.limit_in_bytes",
            "memory/memory.limit_in_bytes",
            "b/c/memory.max",
            "b/memory.max",
            "memory.max",
        ];
        assert_eq!(found, expected);
    }
}
