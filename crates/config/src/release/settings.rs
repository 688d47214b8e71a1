//! The settings of a pool, with the paths of its release.

use super::map::Map;
use crate::application::{Application, Php, ScriptRoot, StartCommand};
use crate::model::Pool;
use crate::path_pattern::PathPattern;
use std::path::PathBuf;

/// php.ini settings that contain one path, and settings that contain a list of paths.
const PATHS: [&str; 3] = ["auto_prepend_file", "auto_append_file", "opcache.preload"];
const LISTS: [&str; 2] = ["open_basedir", "include_path"];

/// Returns the settings with each path of any release moved into this one. Logs and variables stay unchanged.
pub fn in_release(pool: &Pool, map: &Map) -> Pool {
    let mut pool = pool.clone();
    let optional = |path: &mut Option<PathBuf>| {
        if let Some(path) = path {
            *path = map.in_release(path);
        }
    };
    optional(&mut pool.setup.chdir);
    if let Some(file) = &mut pool.environment.env_file {
        let path = map.in_release(&file.path);
        // The pool's user may have chosen the release, so root's files are not for it.
        file.is_owners |= path != file.path;
        file.path = path;
    }
    if let Some(paths) = &mut pool.confine.paths {
        for path in paths.read.iter_mut().chain(&mut paths.write) {
            *path = map.in_release(path);
        }
    }
    match &mut pool.application {
        Application::Wrapped(wrapped) => {
            wrapped.root = map.in_release(&wrapped.root);
            wrapped.interpreter = map.in_release(&wrapped.interpreter);
        }
        Application::Program(program) => {
            program.root = map.in_release(&program.root);
            if let (Some(command), true) = (map.start_command(), program.start_command.is_empty()) {
                command.clone_into(&mut program.start_command);
            }
        }
        Application::Cgi(cgi) => {
            optional(&mut cgi.root);
            optional(&mut cgi.script);
        }
        Application::FastCgi(fastcgi) => {
            optional(&mut fastcgi.root);
            script_root(&mut fastcgi.script_root, map);
            if let StartCommand::Program { path, .. } = &mut fastcgi.command {
                *path = map.in_release(path);
            }
        }
        Application::Php(php) => php_in_release(php, map),
        Application::Http(_) | Application::Rust => {}
    }
    pool
}

fn script_root(root: &mut Option<ScriptRoot>, map: &Map) {
    if let Some(root) = root {
        root.path = map.in_release(&root.path);
    }
}

fn php_in_release(php: &mut Php, map: &Map) {
    script_root(&mut php.script_root, map);
    if let Some(worker) = &mut php.worker {
        worker.path = map.in_release(&worker.path);
        for pattern in &mut worker.watch {
            let path = PathBuf::from(String::from(pattern.clone()));
            let path = map.in_release(&path);
            *pattern = PathPattern::from(path.to_string_lossy().into_owned());
        }
    }
    let tables = [&mut php.defines, &mut php.php_value, &mut php.php_admin_value];
    for (name, value) in tables.into_iter().flatten() {
        if let Some(mapped) = setting(name, value.as_bytes(), map) {
            *value = String::from_utf8_lossy(&mapped).into_owned();
        }
    }
}

/// Returns the value of a php.ini setting in the release. `None`: it stays unchanged.
pub(super) fn setting(name: &str, value: &[u8], map: &Map) -> Option<Vec<u8>> {
    let quote = value.first().filter(|first| matches!(first, b'"' | b'\''));
    let inner = quote
        .and_then(|quote| value[1..].strip_suffix(&[*quote]))
        .unwrap_or(value);
    let mapped = match name {
        _ if LISTS.contains(&name) => map.list(inner).list,
        _ if PATHS.contains(&name) => match map.path(inner) {
            super::Mapped::Inside(path) => path,
            super::Mapped::Relative | super::Mapped::Outside => return None,
        },
        _ => return None,
    };
    if mapped == inner {
        return None;
    }
    Some(match quote {
        Some(quote) if inner.len() < value.len() => [&[*quote], &mapped[..], &[*quote]].concat(),
        Some(_) | None => mapped,
    })
}
