//! CA hierarchy, issuing, rotation, trust bundles and certificate identity
