//! Query parameters, decoded as Go's `url.ParseQuery` and apimachinery's conversions decode them.

use percent_encoding::percent_decode_str;

use crate::ApiError;

/// A query string, taken apart.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Of a request.
    pub fn of(uri: &http::Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        Self(pairs.collect())
    }

    /// The first value of a parameter, empty if absent.
    pub fn text(&self, key: &str) -> &str {
        let found = self.0.iter().find(|(k, _)| k == key);
        found.map(|(_, v)| v.as_str()).unwrap_or_default()
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let of_key = move |(k, _): &&(String, String)| k == key;
        self.0.iter().filter(of_key).map(|(_, v)| v.as_str())
    }

    /// A switch: given, and neither `false` nor `0`. `None` if absent.
    pub fn switch(&self, key: &str) -> Option<bool> {
        let value = self.all(key).next()?;
        Some(!value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// A number; `None` if absent or empty.
    ///
    /// # Errors
    /// 400 for what is none.
    pub fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let value = self.text(key);
        if value.is_empty() {
            return Ok(None);
        }
        value.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing {value:?}: invalid syntax (parameter {key})"
            ))
        })
    }
}

fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_decode_as_in_go() {
        let uri = "/x?a=1&b=x%20y+z&c&d=0&e=False&f=true&a=2".parse().unwrap();
        let query = Query::of(&uri);
        assert_eq!(query.text("b"), "x y z");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.number("a"), Ok(Some(1)));
        assert_eq!(query.number("z"), Ok(None));
        assert!(query.number("b").is_err());
        let switches: Vec<_> = ["c", "d", "e", "f", "z"].map(|k| query.switch(k)).into();
        assert_eq!(
            switches,
            [Some(true), Some(false), Some(false), Some(true), None]
        );
    }
}
