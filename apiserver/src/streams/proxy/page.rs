//! What a browser gets instead of a redirect, which kube-apiserver does not let through. Pure.

use super::location::Target;

/// What our own page may do: nothing but lead on.
pub(super) const POLICY: &str = "default-src 'none'; sandbox allow-popups allow-scripts";

/// A page that leads on: at once to the guest itself, after a click to another site.
pub(super) fn leading_to(target: &Target) -> String {
    let text = escaped(target.as_str());
    let (refresh, words) = match target {
        Target::Inside(_) => (
            format!("<meta http-equiv=\"refresh\" content=\"0; url={text}\">"),
            format!("<p>Going on to <a href=\"{text}\">{text}</a>"),
        ),
        Target::Outside(_) => (
            String::new(),
            format!(
                "<p>This app sends you to another site: <a rel=\"noreferrer\" href=\"{text}\">{text}</a>"
            ),
        ),
        Target::Other(_) => (
            String::new(),
            format!("<p>This app sends you to what is no web page: {text}"),
        ),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"referrer\" content=\"no-referrer\">{refresh}<title>Redirect</title></head>\n\
         <body>{words}</body></html>\n"
    )
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_guest_itself_is_gone_on_to_without_a_click() {
        let inside = leading_to(&Target::Inside("/p/x?a=1&b='\"<y>".into()));
        let url = "/p/x?a=1&amp;b=&#39;&quot;&lt;y&gt;";
        assert!(
            inside.contains(&format!("content=\"0; url={url}\"")),
            "{inside}"
        );
        assert!(
            inside.contains(&format!("<a href=\"{url}\">{url}</a>")),
            "{inside}"
        );
        let outside = leading_to(&Target::Outside("https://example.org/".into()));
        assert!(!outside.contains("refresh"), "{outside}");
        assert!(outside.contains("href=\"https://example.org/\""));
        let other = leading_to(&Target::Other("javascript:alert('<x>')".into()));
        assert!(
            !other.contains("href") && !other.contains("refresh"),
            "{other}"
        );
        assert!(
            other.contains("javascript:alert(&#39;&lt;x&gt;&#39;)"),
            "{other}"
        );
    }
}
