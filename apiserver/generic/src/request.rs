//! A request taken apart by its URL, by kube-apiserver's own rules
//! (`k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`).
//!
//! Entry point: [`RequestInfo::parse`]. Authorization and routing both read its result and never
//! the URL again, so that what was allowed is what is done.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use crate::{
    ApiError, Attributes,
    selector::{self, Selectors},
};

#[cfg(test)]
mod tests;

/// Stands for what is no UTF-8.
const UNREADABLE: char = char::REPLACEMENT_CHARACTER;

/// What the URL and the method say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether it is about a resource.
    pub is_resource: bool,
    /// The URL's path.
    pub path: String,
    /// `get`, `list`, …; the lower-case method for non-resource requests.
    pub verb: String,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, else empty.
    pub namespace: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource, else empty.
    pub subresource: String,
    /// Object name, else empty.
    pub name: String,
    /// What follows the subresource in the path, decoded segment by segment, as far as it is UTF-8.
    pub rest: Vec<String>,
    /// `fieldSelector` and `labelSelector` of list, watch and deletecollection, for the review.
    pub selectors: Selectors,
}

impl RequestInfo {
    /// Takes a request line apart.
    ///
    /// # Errors
    /// 400 when the path's percent-encoding does not decode, or what is ours in it not to UTF-8.
    pub fn parse(method: &Method, uri: &Uri) -> Result<Self, ApiError> {
        let raw: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let parts = raw.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let mut info = Self {
            path: decode(uri.path())?,
            verb: method.as_str().to_ascii_lowercase(),
            ..Self::default()
        };
        if let Some(relative) = info.take_group_version(&parts) {
            info.is_resource = true;
            info.take_resource(method, relative, uri.query().unwrap_or_default())?;
        }
        info.check_encoding(uri.path())?;
        Ok(info)
    }

    /// What follows a subresource may be somebody else's, in an encoding of their own.
    fn check_encoding(&self, path: &str) -> Result<(), ApiError> {
        let ours = match self.is_resource {
            false => vec![&self.path],
            true => vec![
                &self.group,
                &self.version,
                &self.namespace,
                &self.resource,
                &self.name,
                &self.subresource,
            ],
        };
        match ours.iter().any(|part| part.contains(UNREADABLE)) {
            false => Ok(()),
            true => Err(ApiError::bad_request(format!(
                "the path {path:?} does not decode to UTF-8"
            ))),
        }
    }

    /// What RBAC is asked about it.
    pub fn attributes(&self) -> Attributes {
        if !self.is_resource {
            return Attributes {
                verb: self.verb.clone(),
                path: self.path.clone(),
                ..Attributes::default()
            };
        }
        Attributes {
            verb: self.verb.clone(),
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            path: String::new(),
            selectors: self.selectors.clone(),
        }
    }

    /// Reads `/api/<version>` or `/apis/<group>/<version>`; what remains is relative to it.
    /// `None` means that it is no resource request.
    fn take_group_version<'p>(&mut self, parts: &'p [String]) -> Option<&'p [String]> {
        match parts {
            [prefix, version, rest @ ..] if prefix == "api" && !rest.is_empty() => {
                self.version.clone_from(version);
                Some(rest)
            }
            [prefix, group, version, rest @ ..] if prefix == "apis" && !rest.is_empty() => {
                self.group.clone_from(group);
                self.version.clone_from(version);
                Some(rest)
            }
            _ => None,
        }
    }

    fn take_resource(
        &mut self,
        method: &Method,
        relative: &[String],
        query: &str,
    ) -> Result<(), ApiError> {
        let (special, relative) = special_verb(relative)?;
        self.verb = special.unwrap_or_else(|| verb_of(method)).to_owned();
        let parts = self.take_namespace(relative);
        self.take_parts(parts);
        self.settle_nameless_verb(query);
        if special.is_none() && matches!(self.verb.as_str(), "list" | "watch" | "deletecollection")
        {
            self.selectors = Selectors {
                fields: selector::parse_fields(&first(query, "fieldSelector").unwrap_or_default()),
                labels: selector::parse_labels(&first(query, "labelSelector").unwrap_or_default()),
            };
        }
        Ok(())
    }

    /// `namespaces/<ns>` sets the namespace; the resource starts after it unless nothing follows
    /// or one of a namespace's own subresources does.
    fn take_namespace<'p>(&mut self, parts: &'p [String]) -> &'p [String] {
        let [first, namespace, rest @ ..] = parts else {
            return parts;
        };
        if first != "namespaces" {
            return parts;
        }
        self.namespace.clone_from(namespace);
        match rest {
            [] => parts,
            [next, ..] if next == "status" || next == "finalize" => parts,
            _ => rest,
        }
    }

    fn take_parts(&mut self, parts: &[String]) {
        let mut parts = parts.iter();
        self.resource = parts.next().cloned().unwrap_or_default();
        self.name = parts.next().cloned().unwrap_or_default();
        if self.verb != "proxy" {
            self.subresource = parts.next().cloned().unwrap_or_default();
        }
        self.rest = parts.cloned().collect();
    }

    /// Without a name a get is a list or a watch, and a delete is a deletecollection.
    fn settle_nameless_verb(&mut self, query: &str) {
        if !self.name.is_empty() {
            return;
        }
        match self.verb.as_str() {
            "get" => {
                let watch = first(query, "watch").is_some_and(|value| {
                    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
                });
                self.verb = if watch { "watch" } else { "list" }.to_owned();
                let fields =
                    selector::parse_fields(&first(query, "fieldSelector").unwrap_or_default());
                self.name = selector::exact_name(&fields).unwrap_or_default();
            }
            "delete" => self.verb = "deletecollection".to_owned(),
            _ => {}
        }
    }
}

/// `watch/…` and `proxy/…` right after the version: kube-apiserver's oldest spelling of a verb.
fn special_verb(parts: &[String]) -> Result<(Option<&'static str>, &[String]), ApiError> {
    let verb = match parts.first().map(String::as_str) {
        Some("watch") => "watch",
        Some("proxy") => "proxy",
        _ => return Ok((None, parts)),
    };
    match &parts[1..] {
        [] => Err(ApiError::bad_request(
            "unable to determine kind and namespace from url: a resource must follow the verb",
        )),
        rest => Ok((Some(verb), rest)),
    }
}

fn verb_of(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn decode(segment: &str) -> Result<String, ApiError> {
    if !well_formed(segment) {
        return Err(ApiError::bad_request(format!(
            "the path {segment:?} has a % that is not followed by two hexadecimal digits"
        )));
    }
    let text = percent_decode_str(segment).decode_utf8_lossy();
    Ok(text.into_owned())
}

fn well_formed(segment: &str) -> bool {
    segment.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes();
        digits.len() >= 2 && digits[0].is_ascii_hexdigit() && digits[1].is_ascii_hexdigit()
    })
}

/// The first value of a query parameter, decoded as forms are.
pub fn first(query: &str, key: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_form(name) == key).then(|| decode_form(value))
    })
}

fn decode_form(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}
