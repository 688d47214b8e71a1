fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match &arguments[..] {
        [word, store, file] if word == "backup" => forkyard_jobs::back_up(store.as_ref(), file.as_ref()),
        _ => forkyard_jobs::main(),
    }
}
