//! A request taken apart by its URL, by kube-apiserver's own rules
//! (`k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`).
