//! Writes container images as OCI-layout archives, without a container engine
