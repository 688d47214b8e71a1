use super::*;
use forkyard_config::wordpress_lanes;

fn params(of: &[(&str, &str)]) -> Params {
    let mut params = Params::new();
    for (name, value) in of {
        params.set(name.as_bytes(), value.as_bytes());
    }
    params
}

fn classes(rules: Vec<LaneRule>) -> Classes {
    Classes::new(&Lanes {
        rules,
        ..Lanes::default()
    })
}

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";

#[test]
fn wordpress_requests_get_their_lane() {
    use Lane::{Background, Bots, First, People};
    let classes = classes(wordpress_lanes());
    let session = "a=b; wp_woocommerce_session_5f=1%7C2; woocommerce_items_in_cart=1";
    let editor = "wordpress_logged_in_9a=admin";
    for (method, uri, cookie, agent, expected) in [
        ("GET", "/", "", BROWSER, People),
        ("GET", "/product/shirt/?color=red", "", BROWSER, People),
        ("GET", "/cart/", session, BROWSER, First),
        ("GET", "/cart", session, BROWSER, First),
        ("GET", "/cartoons/", "", BROWSER, People),
        ("POST", "/shop/checkout/", session, BROWSER, First),
        (
            "GET",
            "/checkout/order-pay/12/?key=wc_order_x",
            session,
            BROWSER,
            First,
        ),
        ("POST", "/?wc-ajax=checkout", session, BROWSER, First),
        (
            "POST",
            "/product/shirt/?x=1&wc-ajax=add_to_cart",
            "",
            BROWSER,
            First,
        ),
        ("POST", "/wp-json/wc/store/v1/cart/add-item", "", BROWSER, First),
        ("POST", "/?rest_route=/wc/store/v1/cart", "", BROWSER, First),
        // Payment providers.
        ("POST", "/?wc-api=WC_Gateway_Paypal", "", "", First),
        (
            "POST",
            "/wc-api/wc_stripe/",
            "",
            "Stripe/1.0 (+https://stripe.com/docs/webhooks)",
            First,
        ),
        ("POST", "/wp-login.php", "", BROWSER, First),
        ("GET", "/wp-login.php", "", BROWSER, People),
        (
            "POST",
            "/wp-cron.php?doing_wp_cron=1",
            "",
            "WordPress/6.1; http://shop.test",
            Background,
        ),
        ("POST", "/xmlrpc.php", "", BROWSER, Background),
        ("POST", "/wp-admin/admin-ajax.php", "", BROWSER, Background),
        ("POST", "/wp-admin/admin-ajax.php", session, BROWSER, People),
        ("POST", "/wp-admin/admin-ajax.php", editor, BROWSER, People),
        ("GET", "/wp-json/wp/v2/posts", "", BROWSER, Background),
        ("GET", "/wp-json/wp/v2/posts", editor, BROWSER, People),
        ("GET", "/?rest_route=/wp/v2/posts", "", BROWSER, Background),
        (
            "GET",
            "/cart/?add-to-cart=7",
            "",
            "Mozilla/5.0 (compatible; Googlebot/2.1)",
            Bots,
        ),
        (
            "GET",
            "/",
            "",
            "Mozilla/5.0 (compatible; GPTBot/1.2; +https://openai.com/gptbot)",
            Bots,
        ),
        ("GET", "/", "", "meta-externalagent/1.1 crawler", Bots),
        ("GET", "/", "", "", Bots),
        ("GET", "/", "", "python-requests/2.32", Bots),
        (
            "GET",
            "/",
            "",
            "Mozilla/5.0 (Linux; Android 9; CUBOT_X18_Plus)",
            People,
        ),
    ] {
        let params = params(&[
            ("REQUEST_METHOD", method),
            ("REQUEST_URI", uri),
            ("HTTP_COOKIE", cookie),
            ("HTTP_USER_AGENT", agent),
        ]);
        assert_eq!(classes.lane(&params), expected, "{method} {uri} {cookie} {agent}");
    }
    assert_eq!(classes.lane(&params(&[])), Bots, "no agent");
}

#[test]
fn the_web_server_counts_before_the_rules() {
    let classes = classes(wordpress_lanes());
    for (lane, expected) in [
        ("background", Lane::Background),
        ("first", Lane::First),
        ("", Lane::Bots),
        ("nonsense", Lane::Bots),
    ] {
        let params = params(&[("LANE", lane), ("HTTP_USER_AGENT", "a bot")]);
        assert_eq!(classes.lane(&params), expected, "{lane}");
    }
}

#[test]
fn bytes_of_any_kind_have_a_lane() {
    let classes = classes(wordpress_lanes());
    let mut params = Params::new();
    params.set(b"REQUEST_URI", b"/\xff\xfe?\x80");
    params.set(b"HTTP_COOKIE", b"\xff=; ;;=");
    params.set(b"HTTP_USER_AGENT", b"\xc3\x28");
    assert_eq!(classes.lane(&params), Lane::People);
}
