//! Pages, whole and cut anywhere.

use super::*;
use crate::streams::proxy::{location::Own, path::Prefix};

const P: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces/w1/proxy";

fn rewriter() -> Rewriter {
    let own = Own::new(8080, None);
    Rewriter::new(Links::new(Prefix::new("t1", "w1"), &own))
}

fn rewritten(pieces: &[&[u8]]) -> String {
    let (mut rewriter, mut out) = (rewriter(), Vec::new());
    for piece in pieces {
        rewriter.feed(piece, &mut out);
    }
    rewriter.finish(&mut out);
    String::from_utf8(out).unwrap()
}

/// `§` stands for where the prefix goes.
fn check(page: &str) {
    let given = page.replace('§', "");
    let expected = page.replace('§', P);
    assert_eq!(rewritten(&[given.as_bytes()]), expected);
    for at in 0..given.len() {
        let (one, two) = given.as_bytes().split_at(at);
        assert_eq!(rewritten(&[one, two]), expected, "cut at {at}");
    }
    let bytes: Vec<&[u8]> = given.as_bytes().chunks(1).collect();
    assert_eq!(rewritten(&bytes), expected, "byte by byte");
}

#[test]
fn absolute_links_get_the_prefix_wherever_the_page_is_cut() {
    for page in [
        "<a href=\"§/login\">x</a>",
        "<A HREF = '§/login?a=/b' class=x>",
        "<img src=§/a.png alt=/b>",
        "<form method=post action=§/>",
        "<link rel=stylesheet href=\" §/a.css\">",
        "<base href=\"§/\"><script src='§/a.js'></script>",
        "<img srcset=\"§/a.png 1x, §/b.png 2x,§/c.png 3x\" src='c'>",
        "<img srcset='§/a,b.png, §/c.png 2x , d.png 3x'>",
        "<object data=§/x></object><p data=/x>",
        "<meta http-equiv=refresh content='0; url=§/next'>",
        "<meta content=\"1;URL='§/next'\">",
        "<svg><use xlink:href=\"§/i.svg#a\"/></svg>",
        "<button formaction='§/x'><video poster=§/p.png>",
        "<a/href='§/x'/title='/y'>",
        "<a href>§</a>".replace('§', "/").as_str(),
        "<a href=§/x>",
        "<a href=\"§&#x2F;login&#x2F;x\"><a href='§&#47;x'><a href=§&sol;x>",
        "<a href='§\\x'><img srcset='§&#x2F;a 1x, §&#x2f;b 2x'>",
        "<meta content='0;url=§&#x2F;next'>",
        "<plaintextx><a href='§/x'></plaintextx><a href='§/y'>",
        "<a href=\"§/",
    ] {
        check(page);
    }
}

#[test]
fn own_absolute_links_lose_their_origin() {
    for (given, expected) in [
        (
            "<a href='http://localhost:8080/x'>",
            format!("<a href='{P}/x'>"),
        ),
        ("<a href=HTTP://127.0.0.1:8080>", format!("<a href={P}>")),
        (
            "<a href='http&#58;&#x2F;&sol;localhost:8080&#x2F;x'>",
            format!("<a href='{P}&#x2F;x'>"),
        ),
        (
            "<a href='http://localhost:80800/x'>",
            "<a href='http://localhost:80800/x'>".to_owned(),
        ),
        (
            "<a href='http://localhost:8080@evil.example/'>",
            "<a href='http://localhost:8080@evil.example/'>".to_owned(),
        ),
    ] {
        assert_eq!(rewritten(&[given.as_bytes()]), expected);
    }
}

#[test]
fn everything_else_passes_byte_for_byte() {
    let escaped = P.replace('/', "&#x2F;");
    let own = format!("<a href='{P}/x'><a href='{P}'><a href='{escaped}&#x2F;x'>");
    for page in [
        "",
        "plain /text < /x <3 href=\"/x\" >",
        "<!doctype html><!-- <a href=/x> -- > <a href='/x'> --><p>",
        "<!--><!---><!-- --!><!x <a href=/x><?php <a href=/x>",
        "<script>var a = \"<a href='/x'>\"; a < b</script >",
        "<ScRiPt>'</scriptx><a href=/x>'</SCRIPT>",
        "<style>a{background:url(/x)}</style><title><a href=/x></title>",
        "<textarea></text<a href=/x></textarea>",
        "<a href='//cdn.example/x'><a href='/\\evil'>",
        "<a href='x'><a href='?x'><a href='#x'><a href=''><a href='https://x/y'>",
        "<p title='/x' data-href='/x' hreff=/x hre=/x>",
        "</a href=/x></a></ x><//x>",
        "<meta name=viewport content='/x'><p content='0;url=/x'>",
        "<a href='/&#x2F;cdn.example'><a href='&#x2F;&#47;cdn.example'><a href='/\n/cdn.example'>",
        "<plaintext></plaintext><a href='/x'>",
        "<a href='mailto:/x'><a href = javascript:/x>",
        "<a b=\"'\" c='\"'>href=/x",
        "<averyveryverylongtagname veryveryveryverylongattribute=/x>",
        &own,
    ] {
        check(page);
    }
    let page: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let mut out = Vec::new();
    rewriter().feed(&page, &mut out);
    assert_eq!(out, page);
}

#[test]
fn what_is_held_back_is_the_beginning_of_one_link() {
    let mut rewriter = rewriter();
    let mut out = Vec::new();
    rewriter.feed(b"<img srcset='", &mut out);
    for _ in 0..1000 {
        rewriter.feed(&[b'x'; 1000], &mut out);
        assert!(rewriter.held.capacity() <= 1024);
    }
    rewriter.feed(b"<meta content='0;url=", &mut out);
    assert!(out.len() > 1_000_000);
}
