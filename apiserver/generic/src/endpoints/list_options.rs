//! What a list or watch asks for. Pure.
//!
//! Rules and words of `k8s.io/apimachinery/pkg/apis/meta/internalversion/validation` and of
//! `k8s.io/apiserver/pkg/storage/etcd3` (which state a resourceVersion means).

use super::{query::Query, token::Token};
use crate::{
    ApiError, Cause,
    cache::Freshness,
    filter::{FieldSelector, LabelSelector, Selector},
    registry::{ListAt, ListOptions, WatchStart, forbidden, unsupported},
    storage::Revision,
};

/// Longest watch, in seconds: a clock cannot be set to any moment that a caller can write down.
const LONGEST: u64 = 366 * 24 * 3600;

const EXACT: &str = "Exact";
const NOT_OLDER: &str = "NotOlderThan";
const MATCH: &str = "resourceVersionMatch";

/// 422 about an options object that stands in the query.
pub(super) fn refuse(kind: &str, causes: Vec<Cause>) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid("meta.k8s.io", kind, "", causes))
}

/// Both selectors of a request that was authorized for `name` (empty: for all); `extra` are the
/// resource's own selectable fields. The name stands in the path of `watch/…/NAME`, or in the field
/// selector.
pub(super) fn selector(query: &Query, extra: &[&str], name: &str) -> Result<Selector, ApiError> {
    let labels = LabelSelector::parse(query.text("labelSelector"));
    let labels = labels.map_err(|fault| ApiError::bad_request(fault.to_string()))?;
    let fields = FieldSelector::parse(query.text("fieldSelector"), extra);
    let fields = fields.map_err(|fault| ApiError::bad_request(fault.to_string()))?;
    let fields = match name.is_empty() || fields.required("metadata.name") == Some(name) {
        true => fields,
        false => fields.named(name),
    };
    Ok(Selector { labels, fields })
}

fn revision(query: &Query) -> Result<Option<Revision>, ApiError> {
    let text = query.text("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(|n| Some(Revision(n))).map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// A list.
pub(super) fn list(
    query: &Query,
    namespace: Option<String>,
    selector: Selector,
) -> Result<ListOptions, ApiError> {
    validate_list(query)?;
    let version = revision(query)?;
    let limit = query.number("limit")?.filter(|limit| *limit > 0);
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut options = ListOptions {
        namespace,
        at: at(version, query.text(MATCH), limit.is_some()),
        selector,
        limit,
        after: None,
    };
    let token = query.text("continue");
    if !token.is_empty() {
        if version.is_some_and(|version| version.0 > 0) {
            let text = "specifying resource version is not allowed when using continue";
            return Err(ApiError::bad_request(text));
        }
        let token = Token::decode(token, &options.selector)
            .map_err(|fault| ApiError::bad_request(format!("invalid continue token: {fault}")))?;
        options.at = token.revision().map_or(ListAt::Latest, ListAt::Exact);
        options.after = Some(token.key());
    } else if options.at == ListAt::Any {
        // As kube-apiserver's watch cache: it is a read of what is at hand, all of it.
        options.limit = None;
    }
    Ok(options)
}

fn at(version: Option<Revision>, matching: &str, limited: bool) -> ListAt {
    match (version, matching) {
        (None, _) => ListAt::Latest,
        (Some(Revision(0)), _) => ListAt::Any,
        (Some(version), EXACT) => ListAt::Exact(version),
        (Some(version), "") if limited => ListAt::Exact(version),
        (Some(version), _) => ListAt::NotOlderThan(version),
    }
}

fn validate_list(query: &Query) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let (matching, version) = (query.text(MATCH), query.text("resourceVersion"));
    let mut forbid = |text: &str| causes.push(forbidden(MATCH, text));
    if !matching.is_empty() {
        if version.is_empty() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !query.text("continue").is_empty() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if matching == EXACT && version == "0" {
            forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        if matching != EXACT && matching != NOT_OLDER {
            causes.push(unsupported(MATCH, matching, &["", EXACT, NOT_OLDER]));
        }
    }
    if query.switch("sendInitialEvents").is_some() {
        let text = "sendInitialEvents is forbidden for list";
        causes.push(forbidden("sendInitialEvents", text));
    }
    refuse("ListOptions", causes)
}

/// A watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WatchRequest {
    /// Where it begins.
    pub(super) start: WatchStart,
    /// Whether the end of the initial events is marked.
    pub(super) mark_initial: bool,
    /// Whether bookmarks are sent.
    pub(super) bookmarks: bool,
    /// How long it lasts, in seconds, if the caller says so.
    pub(super) seconds: Option<u64>,
}

/// Reads a watch's options.
pub(super) fn watch(query: &Query) -> Result<WatchRequest, ApiError> {
    let initial = query.switch("sendInitialEvents");
    validate_watch(query, initial)?;
    let version = revision(query)?;
    let freshness = match version {
        None => Freshness::Latest,
        Some(Revision(0)) => Freshness::Any,
        Some(version) => Freshness::NotOlderThan(version),
    };
    let start = match (initial, version) {
        (Some(true), _) | (None, None | Some(Revision(0))) => WatchStart::Snapshot(freshness),
        (Some(false), None | Some(Revision(0))) => WatchStart::Now(freshness),
        (_, Some(version)) => WatchStart::After(version),
    };
    let bookmarks = query.switch("allowWatchBookmarks").unwrap_or_default();
    let seconds = query.number("timeoutSeconds")?;
    Ok(WatchRequest {
        start,
        mark_initial: initial == Some(true) && bookmarks,
        bookmarks,
        seconds: seconds
            .and_then(|s| u64::try_from(s).ok())
            .filter(|s| *s > 0)
            .map(|s| s.min(LONGEST)),
    })
}

fn validate_watch(query: &Query, initial: Option<bool>) -> Result<(), ApiError> {
    let mut causes = Vec::new();
    let matching = query.text(MATCH);
    if initial.is_some() && matching != NOT_OLDER {
        let text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(forbidden(MATCH, text));
    }
    if !matching.is_empty() {
        if initial.is_none() {
            let text =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(forbidden(MATCH, text));
        }
        if matching != NOT_OLDER {
            causes.push(unsupported(MATCH, matching, &[NOT_OLDER]));
        }
        if !query.text("continue").is_empty() {
            let text = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(forbidden(MATCH, text));
        }
    }
    refuse("ListOptions", causes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;

    fn query(text: &str) -> Query {
        Query::of(&format!("/x?{text}").parse().unwrap())
    }

    #[test]
    fn resource_versions_mean_states() {
        let v = Revision;
        for (text, at, limit) in [
            ("", ListAt::Latest, None),
            ("limit=5", ListAt::Latest, Some(5)),
            ("resourceVersion=0&limit=5", ListAt::Any, None),
            ("resourceVersion=7", ListAt::NotOlderThan(v(7)), None),
            ("resourceVersion=7&limit=5", ListAt::Exact(v(7)), Some(5)),
            (
                "resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan",
                ListAt::NotOlderThan(v(7)),
                Some(5),
            ),
            (
                "resourceVersion=7&resourceVersionMatch=Exact",
                ListAt::Exact(v(7)),
                None,
            ),
        ] {
            let options = list(&query(text), None, Selector::default()).unwrap();
            assert_eq!((options.at, options.limit), (at, limit), "{text}");
        }
    }

    #[test]
    fn lists_that_contradict_themselves_are_refused() {
        for (text, reason) in [
            ("resourceVersionMatch=Exact", Reason::Invalid),
            (
                "resourceVersion=0&resourceVersionMatch=Exact",
                Reason::Invalid,
            ),
            (
                "resourceVersion=1&resourceVersionMatch=Foo",
                Reason::Invalid,
            ),
            ("sendInitialEvents=true", Reason::Invalid),
            ("resourceVersion=x", Reason::BadRequest),
            ("limit=x", Reason::BadRequest),
            ("continue=x", Reason::BadRequest),
            ("continue=x&resourceVersion=4", Reason::BadRequest),
        ] {
            let error = list(&query(text), None, Selector::default()).unwrap_err();
            assert_eq!(error.reason, reason, "{text}");
        }
    }

    #[test]
    fn watches_begin_where_they_ask() {
        use WatchStart::{After, Now, Snapshot};
        let initial =
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        for (text, start, mark) in [
            ("", Snapshot(Freshness::Latest), false),
            ("resourceVersion=0", Snapshot(Freshness::Any), false),
            ("resourceVersion=7", After(Revision(7)), false),
            (initial, Snapshot(Freshness::Latest), true),
            (
                &format!("{initial}&resourceVersion=7"),
                Snapshot(Freshness::NotOlderThan(Revision(7))),
                true,
            ),
            (
                "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
                Now(Freshness::Latest),
                false,
            ),
        ] {
            let request = watch(&query(text)).unwrap();
            assert_eq!(
                (request.start, request.mark_initial),
                (start, mark),
                "{text}"
            );
        }
    }

    #[test]
    fn no_watch_is_longer_than_a_clock_can_tell() {
        let text = format!("timeoutSeconds={}", i64::MAX);
        assert_eq!(watch(&query(&text)).unwrap().seconds, Some(LONGEST));
        assert_eq!(watch(&query("timeoutSeconds=5")).unwrap().seconds, Some(5));
    }

    #[test]
    fn what_was_authorized_for_a_name_selects_that_name() {
        let of = |text: &str, name: &str| selector(&query(text), &[], name).unwrap().to_string();
        for (text, name, expected) in [
            ("", "", "\n"),
            ("", "a", "\nmetadata.name=a"),
            ("fieldSelector=metadata.name%3Da", "a", "\nmetadata.name=a"),
            (
                "fieldSelector=metadata.name%3Db",
                "a",
                "\nmetadata.name=b,metadata.name=a",
            ),
        ] {
            assert_eq!(of(text, name), expected, "{text} {name}");
        }
    }

    #[test]
    fn watches_that_contradict_themselves_are_refused() {
        for text in [
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "sendInitialEvents=true&resourceVersionMatch=Exact",
        ] {
            assert_eq!(
                watch(&query(text)).unwrap_err().reason,
                Reason::Invalid,
                "{text}"
            );
        }
    }
}
