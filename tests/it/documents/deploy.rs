//! The deployment that docs/howto/deploy.md shows, with git, Django and its migrations.

use super::blocks;
use crate::support::prelude::*;

const DOCUMENT: &str = "docs/howto/deploy.md";

const MODELS: &str =
    "from django.db import models\n\nclass Article(models.Model):\n    name = models.TextField()\n";

/// The version's view; the second one needs the table that its migration makes.
fn urls(version: &str) -> String {
    let count = match version {
        "v1" => "0",
        _ => "__import__('stock.models').models.Article.objects.count()",
    };
    format!(
        "from django.http import HttpResponse\nfrom django.urls import path\n\n\ndef page(request):\n    return \
         HttpResponse(f\"{version} {{{count}}}\")\n\nurlpatterns = [path('', page)]\n"
    )
}

struct Shop {
    daemon: Daemon,
    nginx: Nginx,
    place: PathBuf,
    _place: tempfile::TempDir,
}

fn run(directory: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output();
    let output = output.expect(program);
    let said = text_of(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

/// A repository with three versions: the second has a migration, the third fails to start.
fn write_repository(place: &Path) {
    let work = place.join("work");
    fs::create_dir(&work).expect("work");
    run(
        &work,
        "/usr/bin/python3",
        &["-m", "django", "startproject", "shop", "."],
    );
    let settings = work.join("shop/settings.py");
    let text = read_file(&settings)
        + "\nALLOWED_HOSTS = ['*']\nDEBUG = False\nINSTALLED_APPS += ['stock']\n\
           DATABASES['default']['NAME'] = BASE_DIR.parent.parent / 'shared/db.sqlite3'\n";
    fs::write(settings, text).expect("settings.py");
    let stock = work.join("stock");
    fs::create_dir_all(stock.join("migrations")).expect("stock");
    for file in ["__init__.py", "models.py", "migrations/__init__.py"] {
        fs::write(stock.join(file), "").expect(file);
    }
    let git = |arguments: &[&str]| {
        let own = [
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.org",
            "-c",
            "init.defaultBranch=main",
        ];
        run(&work, "git", &[&own, arguments].concat());
    };
    git(&["init", "--quiet"]);
    let commit = |version: &str| {
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message", version]);
        git(&["tag", version]);
    };
    fs::write(work.join("shop/urls.py"), urls("v1")).expect("urls.py");
    commit("v1");
    fs::write(work.join("shop/urls.py"), urls("v2")).expect("urls.py");
    fs::write(stock.join("models.py"), MODELS).expect("models.py");
    run(
        &work,
        "/usr/bin/python3",
        &["manage.py", "makemigrations", "stock"],
    );
    commit("v2");
    fs::write(work.join("shop/wsgi.py"), "import a_module_that_is_missing\n").expect("wsgi.py");
    commit("v3");
    run(place, "git", &["clone", "--quiet", "--bare", "work", "shop.git"]);
}

fn run_text(place: &Path, text: &str, version: &str) -> (Option<i32>, String) {
    let text = text.replace("/srv/shop", &place.display().to_string());
    fs::write(place.join("deploy"), text).expect("deploy");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("/bin/sh")
        .args(["deploy", version])
        .current_dir(place)
        .env("PATH", format!("{}/bin:/usr/bin:{path}", place.display()))
        .output()
        .expect("sh");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), text_of(&said))
}

impl Shop {
    fn start(configure: impl FnOnce(&Path, &Path) -> String) -> Shop {
        let kept = directory();
        let place = kept.path().canonicalize().expect("place").join("shop");
        for name in ["releases", "shared", "bin"] {
            fs::create_dir_all(place.join(name)).expect(name);
        }
        make_writable(&place.join("shared"));
        write_repository(&place);
        let script = blocks::find(DOCUMENT, "shell", "git clone");
        let (first, _) = script.split_once("forkyard deploy").expect("the last line");
        exited(
            Some(0),
            run_text(&place, &format!("{first}ln -s releases/v1 current\n"), "v1"),
        );
        let daemon = Daemon::start(|dir| {
            let control = dir.join("control.sock");
            format!("[global]\ncontrol = {control:?}\n{}", configure(dir, &place))
        });
        let forkyard = place.join("bin/forkyard");
        let own = env!("CARGO_BIN_EXE_forkyard");
        let text = format!(
            "#!/bin/sh\nexec {own} \"$@\" -c {}/forkyard.toml\n",
            daemon.dir.display()
        );
        write_program(&forkyard, text);
        let locations = format!(
            "location / {{ include /etc/nginx/fastcgi_params; fastcgi_param FORKYARD_APP_ROOT {}/current; \
             fastcgi_pass unix:{}; }}",
            place.display(),
            daemon.socket("shop").display()
        );
        Shop {
            nginx: Nginx::start(&locations, ""),
            daemon,
            place,
            _place: kept,
        }
    }

    fn page(&self) -> String {
        curl(&["--include", &self.nginx.url("/")])
    }

    /// Deploys one version after another under load; no request may be lost.
    fn deploy(&self, script: &str, back: &str) {
        assert!(self.page().ends_with("v1 0"), "{}", self.page());
        let load = Load::start(1, |_| {
            let url = self.nginx.url("/");
            move || curl(&[&url])
        });
        exited(Some(0), run_text(&self.place, script, "v2"));
        wait_until("the new release", || self.page().ends_with("v2 0"));
        exited(Some(70), run_text(&self.place, script, "v3"));
        self.daemon.wait_for("a_module_that_is_missing");
        let current = fs::read_link(self.place.join("current")).expect("a link");
        assert_eq!(current, PathBuf::from("releases/v2"));
        assert!(self.page().ends_with("v2 0"), "{}", self.page());
        exited(Some(0), run_text(&self.place, back, ""));
        wait_until("the old release", || self.page().ends_with("v1 0"));
        let mut seen = load.end();
        seen.dedup();
        assert!(
            seen.iter().all(|page| ["v1 0", "v2 0"].contains(&page.as_str())),
            "{seen:?}"
        );
    }
}

fn of_pool_of_one(dir: &Path, place: &Path) -> String {
    let link = format!("{}/current", place.display());
    let settings = format!("pm = \"ondemand\"\nmax_children = 2\nrelease = {link:?}\ngradual = []\n");
    let application = format!("runtime = \"wsgi\"\nroot = {link:?}\n");
    pool(dir, "shop", &settings, &application)
}

#[test]
fn a_release_of_a_pool_of_one_is_deployed_as_the_document_has_it() {
    let script = blocks::find(DOCUMENT, "shell", "git clone");
    let back = "#!/bin/sh\nforkyard rollback shop\n";
    assert!(blocks::find(DOCUMENT, "sh", "forkyard rollback").contains("forkyard rollback shop\n"));
    Shop::start(of_pool_of_one).deploy(&script, back);
}

#[test]
fn a_release_of_an_application_pool_is_deployed_as_the_document_has_it() {
    let of_pool = |dir: &Path, place: &Path| {
        format!(
            "[pool.shop]\nlisten = {{ address = \"{}/shop.sock\", mode = \"0666\" }}\nrouting = \"application\"\ngradual = []\n{}\
             [pool.shop.applications]\ndirectories = [\"{}\"]\nreleases = \"current\"\n\
             user_switching = false\ndefault_user = \"www-data\"\n",
            dir.display(),
            match is_root() {
                true => "user = \"nobody\"\n",
                false => "",
            },
            place.parent().expect("a directory").display(),
        )
    };
    let script = blocks::find(DOCUMENT, "shell", "git clone");
    let (script, _) = script.split_once("forkyard deploy").expect("the last line");
    let line = blocks::find(DOCUMENT, "shell", "deploy /srv/shop");
    let back = "#!/bin/sh\nforkyard rollback /srv/shop\n";
    Shop::start(of_pool).deploy(&format!("{script}{line}"), back);
}
