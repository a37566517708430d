"""What is known of services: mergeable summaries of instances, and compliance with promises."""
