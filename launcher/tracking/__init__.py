"""The door to MLflow: metric names with units, a spool that never blocks a step, and the tracker."""
