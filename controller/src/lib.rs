//! Reconcilers that turn Workspaces into VirtualMachines, StatefulSets and Deployments
