package coordinator

// SetShadowBudget sets how many bytes may be replayed into shadows.
func SetShadowBudget[M Machine](s *Shards[M], bytes int64) { s.budget.Store(bytes) }
