use super::*;
use std::os::unix::fs::{chown, lchown, symlink};

const ALICE: u32 = 4001;
const BOB: u32 = 4002;

struct Shop {
    _place: tempfile::TempDir,
    base: PathBuf,
    root: PathBuf,
}

impl Shop {
    /// `base/shop/releases/{1,2}`, `current`, `current.last` and `current.next`, all Alice's.
    fn new() -> Shop {
        let place = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(place.path()).unwrap().join("sites");
        let root = base.join("shop");
        for release in ["releases/1", "releases/2", "releases/3"] {
            fs::create_dir_all(root.join(release).join("public")).unwrap();
            fs::write(root.join(release).join("public/index.php"), "").unwrap();
        }
        let shop = Shop {
            _place: place,
            base,
            root,
        };
        shop.link("current", "releases/1");
        shop.own_all(ALICE);
        shop
    }

    fn link(&self, name: &str, target: &str) -> PathBuf {
        let path = self.root.join(name);
        let _ = fs::remove_file(&path);
        symlink(target, &path).unwrap();
        path
    }

    fn own_all(&self, user: u32) {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let own = |path: &Path| lchown(path, Some(user), Some(user)).unwrap();
        for path in ["", "current", "releases"] {
            own(&self.root.join(path));
        }
        for release in ["releases/1", "releases/2", "releases/3"] {
            for path in ["", "public", "public/index.php"] {
                own(&self.root.join(release).join(path));
            }
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            directories: vec![self.base.clone()],
            restart_dir: None,
            switching: nix::unistd::geteuid().is_root(),
            user_mounts: true,
            releases: Some("current".into()),
        }
    }

    fn found(&self, root: &str) -> Option<(PathBuf, PathBuf)> {
        let found = find(&self.base.join(root), &self.terms())?;
        let below = |path: &Path| path.strip_prefix(&self.root).unwrap().to_owned();
        Some((below(&found.link), below(&found.release)))
    }
}

fn pair(link: &str, release: &str) -> Option<(PathBuf, PathBuf)> {
    Some((link.into(), release.into()))
}

#[test]
fn a_root_is_the_link_has_it_or_is_its_release() {
    let shop = Shop::new();
    for root in ["shop", "shop/current", "shop/releases/1", "shop/./current"] {
        assert_eq!(shop.found(root), pair("current", "releases/1"), "{root}");
    }
    assert_eq!(shop.found("shop/releases/2"), None, "no link names it");
    for end in [NEXT, LAST] {
        let link = shop.link(&format!("current{end}"), "releases/2");
        assert_eq!(shop.found("shop/releases/2"), pair("current", "releases/2"));
        assert_eq!(shop.found("shop"), pair("current", "releases/1"));
        fs::remove_file(link).unwrap();
    }
    shop.link("current", "releases/3");
    assert_eq!(shop.found("shop"), pair("current", "releases/3"));
    let without = Terms {
        releases: None,
        ..shop.terms()
    };
    assert_eq!(find(&shop.root, &without), None);
    // A directory of that name is a plain application.
    fs::remove_file(shop.root.join("current")).unwrap();
    fs::create_dir(shop.root.join("current")).unwrap();
    assert_eq!(shop.found("shop/current"), None);
    shop.link("elsewhere", "/etc");
    assert_eq!(shop.found("shop/elsewhere"), None);
}

#[test]
fn an_inspection_is_that_of_the_release() {
    let shop = Shop::new();
    for root in ["shop", "shop/current", "shop/releases/1"] {
        let found = super::super::find::inspect(&shop.base.join(root), None, &shop.terms()).unwrap();
        assert_eq!(found.root, shop.root.join("releases/1"), "{root}");
        assert_eq!(found.link, Some(shop.root.join("current")), "{root}");
        assert_eq!(found.revision.as_deref(), Some("1"));
    }
    // The master knows the link of a release that no link names any more.
    let (root, link) = (shop.root.join("releases/2"), shop.root.join("current"));
    let found = super::super::find::inspect(&root, Some(&link), &shop.terms()).unwrap();
    assert_eq!((found.root, found.link), (root.clone(), Some(link)));
    let plain = super::super::find::inspect(&root, None, &shop.terms()).unwrap();
    assert_eq!((plain.root, plain.link), (root, None));
}

#[test]
fn link_and_release_have_one_owner() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let shop = Shop::new();
    let (root, link) = (shop.root.join("releases/1"), shop.root.join("current"));
    let inspected = || super::super::find::inspect(&root, Some(&link), &shop.terms());
    let why = || inspected().expect_err("it is refused").why;
    inspected().expect("it is Alice's");
    lchown(&link, Some(0), Some(0)).unwrap();
    inspected().expect("root may have made the link");
    lchown(&link, Some(BOB), Some(BOB)).unwrap();
    let foreign = FindError::ForeignLink {
        link: link.clone(),
        of: BOB,
        owner: ALICE,
    };
    assert_eq!(why(), foreign);
    lchown(&link, Some(ALICE), Some(ALICE)).unwrap();
    // Bob could have moved Alice's link into his directory.
    chown(&shop.root, Some(BOB), Some(BOB)).unwrap();
    assert!(
        matches!(why(), FindError::ForeignAbove { of: BOB, .. }),
        "{}",
        why()
    );
    chown(&shop.root, Some(ALICE), Some(ALICE)).unwrap();
    fs::remove_file(&link).unwrap();
    fs::create_dir(&link).unwrap();
    assert_eq!(why(), FindError::NoLink(link.clone()));
}
