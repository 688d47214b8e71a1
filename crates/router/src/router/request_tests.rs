use super::*;
use fastcgi::Request;

const OWN: &[u8] = b"APPLICATION_ROOT";

fn wire(params: &[(&[u8], &[u8])], record_content: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    let request = Request {
        id: 258,
        keep: true,
        params,
        body: b"name=value",
        record_content,
        ..Request::default()
    };
    request.encode(&mut wire);
    wire
}

fn root(params: &[(&[u8], &[u8])]) -> Option<Vec<u8>> {
    match read_head(&wire(params, 65_528), OWN) {
        HeadLook::Request(head) => head.root.map(Cow::into_owned),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_root_is_found_at_every_split() {
    let long = vec![b'x'; 300];
    let params: [(&[u8], &[u8]); 4] = [
        (b"SCRIPT_NAME", b"/index.php"),
        (b"HTTP_COOKIE", &long),
        (OWN, b"/srv/shop"),
        (b"DOCUMENT_ROOT", b"/srv/other/public"),
    ];
    for record_content in [1, 7, 100, 65_528] {
        let wire = wire(&params, record_content);
        let mut first = None;
        for end in 0..=wire.len() {
            match read_head(&wire[..end], OWN) {
                HeadLook::Partial => assert!(first.is_none(), "partial again at {end}"),
                HeadLook::Request(head) => {
                    assert_eq!((head.id, head.keep), (258, true));
                    assert_eq!(head.root.as_deref(), Some(&b"/srv/shop"[..]));
                    first.get_or_insert(end);
                }
                HeadLook::Other => panic!("strange at {end}"),
            }
        }
        let body = if record_content == 1 { 10 * 16 } else { 0 };
        assert!(
            first.is_some_and(|first| first < wire.len() - body),
            "before the body"
        );
    }
}

#[test]
fn the_names_have_an_order_and_the_last_of_a_name_counts() {
    let own: (&[u8], &[u8]) = (OWN, b"/own");
    let app: (&[u8], &[u8]) = (b"PASSENGER_APP_ROOT", b"/passenger");
    let document: (&[u8], &[u8]) = (b"DOCUMENT_ROOT", b"/srv/site/public");
    assert_eq!(root(&[document, app, own]).as_deref(), Some(&b"/own"[..]));
    assert_eq!(root(&[document, app]).as_deref(), Some(&b"/passenger"[..]));
    assert_eq!(root(&[document]).as_deref(), Some(&b"/srv/site"[..]));
    assert_eq!(root(&[(OWN, b""), document]).as_deref(), Some(&b"/srv/site"[..]));
    assert_eq!(
        root(&[(OWN, b"/first"), (OWN, b"/last")]).as_deref(),
        Some(&b"/last"[..])
    );
    assert_eq!(root(&[(b"DOCUMENT_ROOT", b"/")]), None);
    assert_eq!(root(&[]), None);
}

#[test]
fn what_is_no_plain_request_is_left_to_others() {
    let plain = wire(&[(OWN, b"/own")], 65_528);
    let changed = |at: usize, byte: u8| {
        let mut wire = plain.clone();
        wire[at] = byte;
        wire
    };
    for (at, byte) in [(0, 0), (1, 9), (5, 7), (9, 7), (17, 5), (19, 3)] {
        assert_eq!(read_head(&changed(at, byte), OWN), HeadLook::Other, "{at}");
    }
    assert_eq!(read_head(b"GET / HTTP/1.0\r\n\r\n", OWN), HeadLook::Other);
    assert_eq!(
        read_head(&[1, 9, 0, 0, 0, 0, 0, 0], OWN),
        HeadLook::Other,
        "management"
    );
    let mut cut = plain[..16].to_vec();
    cut.extend([1, 4, 1, 2, 0, 2, 0, 0, 9, 9, 1, 4, 1, 2, 0, 0, 0, 0]);
    assert_eq!(read_head(&cut, OWN), HeadLook::Other);
}

#[test]
fn a_large_request_is_known_by_the_pool_s_own_parameter() {
    let large = vec![b'x'; 100_000];
    let params: [(&[u8], &[u8]); 3] = [(b"A", b"b"), (OWN, b"/own"), (b"HTTP_LARGE", &large)];
    let wire = wire(&params, 65_528);
    let head = read_head_early(&wire[..40_000], OWN).expect("it is known");
    assert_eq!((head.id, head.root.as_deref()), (258, Some(&b"/own"[..])));
    assert_eq!(read_head_early(&wire[..40_000], b"ELSE"), None);
    assert_eq!(read_head_early(b"GET / HTTP/1.0\r\n\r\n", OWN), None);
}
