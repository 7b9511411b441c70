package main

func (s *scale) requests() error { return nil }

func (s *scale) storeRequests() (map[string]float64, error) { return map[string]float64{}, nil }
