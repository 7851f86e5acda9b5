"""Where rows come from: actors in this process, or in processes of their own."""
