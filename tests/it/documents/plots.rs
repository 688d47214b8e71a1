//! Pictures of what `scripts/bench` has measured.

use super::blocks::root;
use crate::support::prelude::*;

const FIGURES: &str = r#"{"forkyard": "forkyard 0.1.0", "machine": "2 processors", "programs": "dist", "quick": true, "load_before": 0.5, "load_after": 1.5, "rows": [
    {"work": "1 client", "forkyard": 1500.0, "php_fpm": 1000.0, "unit": "/s", "must": "≥ 1.3 x", "met": true, "ratio": 1.5,
     "note": "", "rounds": {}, "case": "hello"},
    {"work": "p99 < 1 ms", "forkyard": 3.0, "php_fpm": null, "unit": "ms", "must": "≤ 1 ms", "met": false, "ratio": null,
     "note": "", "rounds": {}, "case": "hello"},
    {"work": "PSS", "forkyard": 0.0, "php_fpm": 0.0, "unit": "MiB", "must": "≤ 1 x", "met": true, "ratio": 1.0,
     "note": "", "rounds": {}, "case": "memory"}]}"#;

fn plot(figures: &Path, plots: &Path) {
    let mut bench = Command::new(root().join("scripts/bench"));
    bench.arg("--from").arg(figures).arg("--plot").arg(plots);
    assert_success(&bench.output().expect("scripts/bench"));
}

#[test]
fn figures_of_a_benchmark_become_pictures() {
    let dir = directory();
    let figures = dir.path().join("figures.json");
    fs::write(&figures, FIGURES).expect("figures");
    let plots = dir.path().join("plots");
    plot(&figures, &plots);
    let hello = read_file(plots.join("hello.svg"));
    for part in [
        r#"class="own" x="330" y="58" width="300.0""#,
        r#"class="other" x="330" y="73" width="200.0""#,
        "1.50; ≥ 1.3 x: met<",
        "p99 &lt; 1 ms<",
        "≤ 1 ms: NOT MET<",
        "forkyard 0.1.0; 2 processors; load average 0.5 before, 1.5 after; a quick run",
    ] {
        assert!(hello.contains(part), "{part}: {hello}");
    }
    assert_eq!(hello.matches("<rect").count(), 3, "{hello}");
    let parses = "import sys, xml.etree.ElementTree as e; [e.parse(f) for f in sys.argv[1:]]";
    let mut python = Command::new("python3");
    python.args(["-c", parses]).args(["hello.svg", "memory.svg"]);
    assert!(python.current_dir(&plots).status().expect("python3").success());
}

fn pictures(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).expect("directory").map_while(Result::ok);
    entries
        .filter(|entry| entry.path().extension().is_some_and(|it| it == "svg"))
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, read_file(entry.path()))
        })
        .collect()
}

#[test]
fn documents_show_pictures_of_the_figures_beside_them() {
    for name in ["benchmark", "overload"] {
        let kept = root().join("docs/howto").join(name);
        let dir = directory();
        plot(&kept.join("figures.json"), dir.path());
        let made = pictures(dir.path());
        assert!(!made.is_empty() && made == pictures(&kept));
        let document = read_file(kept.with_extension("md"));
        for (file, picture) in made {
            assert!(document.contains(&format!("]({name}/{file})")), "{file}");
            assert!(!picture.contains("not to be quoted"), "{file}");
        }
    }
}
