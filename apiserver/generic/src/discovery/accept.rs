//! Which form of discovery a caller wants.

use http::{HeaderMap, header};

/// Forms of the discovery documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The document of the path itself, as JSON.
    Plain,
    /// Everything in one, `apidiscovery.k8s.io/v2`.
    V2,
    /// The same for kube-apiserver 1.26 to 1.29.
    V2Beta1,
}

/// The best form of those accepted. Clauses are tried by quality; what is not understood is skipped.
pub(super) fn choose(headers: &HeaderMap, aggregated: bool) -> Option<Format> {
    let text: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let text = text.join(",");
    if text.trim().is_empty() {
        return Some(Format::Plain);
    }
    let mut clauses: Vec<Clause<'_>> = text.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
        .iter()
        .filter(|clause| clause.quality > 0.0)
        .find_map(|clause| clause.format(aggregated))
}

struct Clause<'t> {
    kind: String,
    parameters: Vec<(&'t str, &'t str)>,
    quality: f32,
}

impl<'t> Clause<'t> {
    fn parse(text: &'t str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        let quality = parameters.iter().find(|(key, _)| *key == "q");
        let quality = quality.map_or(Some(1.0), |(_, value)| value.parse().ok());
        Self {
            kind,
            quality: quality.unwrap_or(0.0),
            parameters,
        }
    }

    fn parameter(&self, key: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| *value)
    }

    fn format(&self, aggregated: bool) -> Option<Format> {
        if !matches!(
            self.kind.as_str(),
            "application/json" | "application/*" | "*/*"
        ) {
            return None;
        }
        match (
            self.parameter("as"),
            self.parameter("g"),
            self.parameter("v"),
        ) {
            (None, None, None) => Some(Format::Plain),
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), version) if aggregated => {
                match version? {
                    "v2" => Some(Format::V2),
                    "v2beta1" => Some(Format::V2Beta1),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_form_that_is_understood_wins() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let swapped =
            "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io;profile=nopeer";
        let proto = "application/vnd.kubernetes.protobuf";
        for (accept, expected) in [
            (String::new(), Some(Format::Plain)),
            ("*/*".into(), Some(Format::Plain)),
            ("application/json, */*".into(), Some(Format::Plain)),
            (v2.into(), Some(Format::V2)),
            (swapped.into(), Some(Format::V2)),
            (format!("{v2},{beta},application/json"), Some(Format::V2)),
            (format!("{beta},application/json"), Some(Format::V2Beta1)),
            (format!("application/json;q=0.9,{v2}"), Some(Format::V2)),
            (format!("{v2};q=0.5,application/json"), Some(Format::Plain)),
            (format!("{proto},application/json"), Some(Format::Plain)),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json".into(),
                Some(Format::Plain),
            ),
            ("application/json;as=Table;v=v1;g=meta.k8s.io".into(), None),
            (proto.into(), None),
            ("application/json;q=0".into(), None),
        ] {
            let headers: HeaderMap = [(header::ACCEPT, accept.parse().unwrap())]
                .into_iter()
                .collect();
            assert_eq!(choose(&headers, true), expected, "{accept}");
        }
        let headers: HeaderMap = [(header::ACCEPT, v2.parse().unwrap())]
            .into_iter()
            .collect();
        assert_eq!(
            choose(&headers, false),
            None,
            "only /apis has the aggregated form"
        );
    }
}
